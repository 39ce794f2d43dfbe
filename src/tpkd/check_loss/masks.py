"""Positions that a label leaves out: whether they count, what is left when all are, and sums over unequal parts."""

from dataclasses import replace

import torch
from torch import Tensor

from tpkd.check_loss.record import LossFinding
from tpkd.check_loss.subject import (
    SAMPLES,
    Evaluation,
    NoGraphError,
    RefusedError,
    Scene,
    Subject,
    close,
    failed,
    not_applicable,
    noted,
    ordinary_scene,
    passed,
    show,
)

IGNORED = [0, 3, 4]
USUAL_INDEX = -100
PARTS = (slice(0, 5), slice(5, 8))
"""Two micro-batches with two and three valid samples."""


def _masked(index: int, nothing: float | None = None) -> tuple[Scene, Tensor]:
    """The ordinary scene with three samples left out, their logits replaced where asked, and which ones are kept."""
    scene, kept = ordinary_scene(), torch.ones(SAMPLES, dtype=torch.bool)
    kept[IGNORED] = False
    if nothing is not None:
        scene = scene.map(lambda z: z.masked_fill(~kept.unsqueeze(-1), nothing))
    return replace(scene, labels=scene.labels.masked_fill(~kept, index)), kept


def check_masks(subject: Subject) -> LossFinding:
    """A position that is left out gets no gradient and does not change that of the others."""
    name, index = "ignored labels", subject.ignore_index
    if not subject.loss.has("labels"):
        return not_applicable(name, "it takes no labels")
    used = USUAL_INDEX if index is None else index
    scene, kept = _masked(used)
    try:
        found = subject.evaluate(scene)
    except RefusedError as error:
        if index is None:
            return not_applicable(name, f"it promises no ignore_index, and refuses a label of {used}: {error}")
        return failed(name, f"refuses a label of {used}: {error}", _refusal(subject, used))
    expected = subject.evaluate(ordinary_scene().rows(kept))
    text = _what_is_wrong(found, expected, kept)
    if not text:
        return passed(name, f"samples labelled {used} do not count")
    if index is None:
        return noted(name, f"it promises no ignore_index; with a label of {used} {text}")
    gradient = subject.gradient_text(labels="m")
    others = subject.gradient_text("s[k]", "t[k]", "y[k]")
    command = subject.command(
        f"m=y.clone(); m[{IGNORED}]={used}; k=m!={used}; s.requires_grad_()",
        show(f"({gradient}-{others}).abs().max().item()", "0.0"),
    )
    return failed(name, f"with a label of {used} {text}", command)


def _what_is_wrong(found: Evaluation, expected: Evaluation, kept: Tensor) -> str:
    if bool((found.gradient[~kept] != 0).any()):
        return "the sample still gets a gradient"
    if not close(found.gradient[kept], expected.gradient):
        return "the other samples get another gradient than without it: it is still counted"
    if found.output.numel() == 1 and not close(found.output, expected.output):
        return "the value is not that of the other samples"
    return ""


def _refusal(subject: Subject, index: int) -> str:
    return subject.command(f"y[{IGNORED}]={index}", show(f"{subject.loss.text()}.sum().item()", '"a number"'))


def check_ignored_garbage(subject: Subject) -> LossFinding:
    """What stands at a position that is left out does not matter, even if it is not a number."""
    name, index = "NaN under a mask", subject.ignore_index
    if index is None or not subject.loss.has("labels"):
        return not_applicable(name, "it promises no ignore_index")
    scene, _ = _masked(index, nothing=torch.nan)
    try:
        found = subject.evaluate(scene)
    except RefusedError as error:
        return noted(name, f"refused: {error}")
    if found.gradient.isfinite().all() and found.output.isfinite().all():
        return passed(name, "logits of NaN at ignored samples reach neither value nor gradient")
    return noted(name, "logits of NaN at ignored samples reach the value or the gradient")


def check_nothing_valid(subject: Subject) -> LossFinding:
    """A batch without a single valid position is worth zero, with a graph and a gradient of zero."""
    name, index = "nothing valid", subject.ignore_index
    if index is None or not subject.loss.has("labels"):
        return not_applicable(name, "it promises no ignore_index")
    scene = ordinary_scene()
    scene = replace(scene, labels=torch.full_like(scene.labels, index))
    prepare = f"y=torch.full_like(y,{index}); s.requires_grad_(); v={subject.loss.text(student='1*s')}.sum()"
    try:
        found = subject.evaluate(scene)
    except NoGraphError as error:
        command = subject.command(prepare, show("v.requires_grad", "True"))
        return failed(name, f"every label ignored: {error}", command)
    except RefusedError as error:
        return failed(name, f"every label ignored: {error}", subject.command(prepare, "v.backward()"))
    if found.total == 0 and not bool(found.gradient.ne(0).any()):
        return passed(name, "every label ignored: 0 with a graph, gradient 0")
    command = subject.command(prepare, show("v.item(),torch.autograd.grad(v,s)[0].abs().max().item()", "0.0,0.0"))
    largest = float(found.gradient.abs().max())
    return failed(name, f"every label ignored: value {found.total:.4g}, largest gradient {largest:.4g}", command)


def check_masked_accumulation(subject: Subject) -> LossFinding:
    """Micro-batches with unequal numbers of valid positions add up, given their count or as sums."""
    name, index = "masked accumulation", subject.ignore_index
    if index is None or not subject.loss.has("labels"):
        return not_applicable(name, "it promises no ignore_index")
    if subject.claims.batchwise:
        return not_applicable(name, "a loss of the whole batch, as you say")
    scene, kept = _masked(index)
    count = int(kept.sum())
    ways: list[tuple[str, dict[str, object], dict[str, object]]] = []
    if subject.loss.has("num_items"):
        ways.append((f"given the count by {subject.loss.names['num_items']}", {}, {"num_items": count}))
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
            return passed(name, f"micro-batches with 2 and 3 valid samples add up, {how}")
        if "num_items" in of_parts:
            cuts = [f"[{part.start}:{part.stop}]" for part in PARTS]
            total = "+".join(subject.gradient_text(f"s{cut}", f"t{cut}", f"m{cut}", **of_parts) for cut in cuts)
            command = subject.command(
                f"m=y.clone(); m[{IGNORED}]={index}; s.requires_grad_()",
                show(f"({total}-{subject.gradient_text(labels='m')}).abs().max().item()", "0.0"),
            )
            return failed(name, f"micro-batches with 2 and 3 valid samples do not add up, {how}", command)
    return noted(name, "each call divides by its own count: unequal micro-batches add up to another gradient")
