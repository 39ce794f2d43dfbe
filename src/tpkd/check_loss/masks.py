"""Positions that a label leaves out: whether they count, what is left when all are, and sums over unequal parts."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from tpkd.check_loss.check import Verdict, check, failed, not_applicable, noted, passed
from tpkd.check_loss.scene import SAMPLES, Scene, close, ordinary_scene
from tpkd.check_loss.subject import Evaluation, NoGraphError, RefusedError, Subject

IGNORED = [0, 3, 4]
USUAL_INDEX = -100
PARTS = (slice(0, 5), slice(5, 8))
"""Two micro-batches with two and three valid samples."""


def _masked(
    index: int | None, ignored: list[int] = IGNORED, *, garbage: float | None = None
) -> tuple[Scene, Bool[Tensor, "N"]]:
    """The ordinary scene with some samples left out, their logits replaced where asked, and which ones are kept."""
    assert index is not None
    scene, kept = ordinary_scene(), torch.ones(SAMPLES, dtype=torch.bool)
    kept[ignored] = False
    if garbage is not None:
        scene = scene.map(lambda z: z.masked_fill(~kept.unsqueeze(-1), garbage))
    return replace(scene, labels=scene.labels.masked_fill(~kept, index)), kept


@check("ignored labels", "labels")
def ignored_labels(subject: Subject) -> Verdict:
    """A position that is left out gets no gradient and does not change that of the others."""
    used = USUAL_INDEX if subject.mask is None else subject.mask
    scene, kept = _masked(used)
    try:
        found = subject.evaluate(scene)
    except RefusedError as error:
        if subject.mask is None:
            return not_applicable(f"it promises no ignore_index, and refuses a label of {used}: {error}")
        command = subject.command(f"y[{IGNORED}]={used}", show=(subject.value_text(), '"a number"'))
        return failed(f"refuses a label of {used}: {error}", command)
    text = _what_is_wrong(found, subject.evaluate(ordinary_scene().rows(kept)), kept)
    if not text:
        return passed(f"samples labelled {used} do not count")
    if subject.mask is None:
        return noted(f"it promises no ignore_index; with a label of {used} {text}")
    gradient, others = subject.gradient_text(labels="m"), subject.gradient_text("s[k]", "t[k]", "y[k]")
    command = subject.command(
        f"m=y.clone(); m[{IGNORED}]={used}; k=m!={used}; s.requires_grad_()",
        show=(f"({gradient}-{others}).abs().max().item()", "0.0"),
    )
    return failed(f"with a label of {used} {text}", command)


def _what_is_wrong(found: Evaluation, expected: Evaluation, kept: Tensor) -> str:
    if bool((found.gradient[~kept] != 0).any()):
        return "the sample still gets a gradient"
    if not close(found.gradient[kept], expected.gradient):
        return "the other samples get another gradient than without it: it is still counted"
    if found.output.numel() == 1 and not close(found.output, expected.output):
        return "the value is not that of the other samples"
    return ""


@check("NaN under a mask", "mask")
def ignored_garbage(subject: Subject) -> Verdict:
    """Logits at an ignored position have no effect, even if they are NaN."""
    scene, _ = _masked(subject.mask, garbage=torch.nan)
    try:
        found = subject.evaluate(scene)
    except RefusedError as error:
        return noted(f"refused: {error}")
    if found.finite:
        return passed("logits of NaN at ignored samples reach neither value nor gradient")
    return noted("logits of NaN at ignored samples reach the value or the gradient")


@check("nothing valid", "mask")
def nothing_valid(subject: Subject) -> Verdict:
    """A batch without a single valid position is worth zero, with a graph and a gradient of zero."""
    scene, _ = _masked(subject.mask, list(range(SAMPLES)))
    prepare = f"y=torch.full_like(y,{subject.mask}); s.requires_grad_(); v={subject.loss.text(student='1*s')}.sum()"
    try:
        found = subject.evaluate(scene)
    except NoGraphError as error:
        return failed(f"every label ignored: {error}", subject.command(prepare, show=("v.requires_grad", "True")))
    except RefusedError as error:
        return failed(f"every label ignored: {error}", subject.command(prepare, "v.backward()"))
    if found.total == 0 and not bool(found.gradient.ne(0).any()):
        return passed("every label ignored: 0 with a graph, gradient 0")
    command = subject.command(prepare, show=("v.item(),torch.autograd.grad(v,s)[0].abs().max().item()", "0.0,0.0"))
    largest = float(found.gradient.abs().max())
    return failed(f"every label ignored: value {found.total:.4g}, largest gradient {largest:.4g}", command)


@check("masked accumulation", "mask", "samples")
def masked_accumulation(subject: Subject) -> Verdict:
    """Micro-batches with unequal numbers of valid positions add up, given their count or as sums."""
    scene, kept = _masked(subject.mask)
    ways: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    if subject.loss.has("num_items"):
        ways.append((f"given the count by {subject.loss.names['num_items']}", {}, {"num_items": int(kept.sum())}))
    if subject.loss.has("reduction"):
        ways.append(("as sums", {"reduction": "sum"}, {"reduction": "sum"}))
    ways.append(("as they are", {}, {}))
    for how, of_whole, of_parts in ways:
        try:
            whole = subject.evaluate(scene, **of_whole)
            parts = torch.cat([subject.evaluate(scene.rows(part), **of_parts).gradient for part in PARTS])
        except RefusedError:
            continue
        if close(parts, whole.gradient):
            return passed(f"micro-batches with 2 and 3 valid samples add up, {how}")
        if "num_items" in of_parts:
            cuts = [f"[{part.start}:{part.stop}]" for part in PARTS]
            total = "+".join(subject.gradient_text(f"s{cut}", f"t{cut}", f"m{cut}", **of_parts) for cut in cuts)
            command = subject.command(
                f"m=y.clone(); m[{IGNORED}]={subject.mask}; s.requires_grad_()",
                show=(f"({total}-{subject.gradient_text(labels='m')}).abs().max().item()", "0.0"),
            )
            return failed(f"micro-batches with 2 and 3 valid samples do not add up, {how}", command)
    return noted("each call divides by its own count: unequal micro-batches add up to another gradient")
