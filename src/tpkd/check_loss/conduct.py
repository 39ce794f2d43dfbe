"""How a loss behaves beside its number: what it writes, remembers and draws, and which shapes it takes."""

from dataclasses import replace

import torch
from torch import Tensor

from tpkd.check_loss.check import Verdict, check, failed, not_applicable, noted, passed
from tpkd.check_loss.scene import CLASSES, SAMPLES, TOLERANCE, Scene, close, ordinary_scene, scale_between
from tpkd.check_loss.subject import RefusedError, Subject

POSITIONS = 4
"""Positions per sample in the dense shapes: the ordinary batch is two such samples."""


@check("gradient to the teacher", "teacher")
def teacher_gradient(subject: Subject) -> Verdict:
    """Whether a backward pass would train the teacher if it is not frozen."""
    found = subject.ordinary.teacher_gradient
    if found is None or not bool(found.ne(0).any()):
        return passed("none flows")
    return noted("one flows: run the teacher under torch.no_grad(), or detach its logits")


@check("inputs")
def untouched(subject: Subject) -> Verdict:
    """The tensors that come in are the same afterwards."""
    scene = ordinary_scene()
    given = Scene(1 * scene.student.clone().requires_grad_(), scene.teacher.clone(), scene.labels.clone())
    subject.call(given)
    letters = {"student": "s", "teacher": "t", "labels": "y"}
    changed = [part for part in letters if not torch.equal(getattr(given, part), getattr(scene, part))]
    if not changed:
        return passed("left as they were")
    letter = letters[changed[0]]
    found = f"({letter}!=before).sum().item()"
    command = subject.command(f"before={letter}.clone()", subject.loss.text(), show=(found, "0"))
    return failed(f"writes into the {' and the '.join(changed)}", command)


@check("repeatable")
def repeatable(subject: Subject) -> Verdict:
    """The same batch gives the same number again, from the same instance and under other random numbers."""
    if subject.memory:
        return noted(f"{subject.memory}; checks that compare results are left out")
    return passed("the same bits again")


@check("views in memory")
def memory_layout(subject: Subject) -> Verdict:
    """Transposed and strided views give what contiguous tensors give."""
    view = ordinary_scene().map(lambda z: torch.stack([z, z], -1).transpose(0, 1).contiguous().transpose(0, 1)[..., 0])
    assert not view.student.is_contiguous()
    command = subject.command(
        "v=lambda z: torch.stack([z,z],-1).transpose(0,1).contiguous().transpose(0,1)[...,0]",
        show=(subject.value_text("v(s)", "v(t)"), subject.value_text()),
    )
    try:
        found = subject.call(view)
    except RefusedError as error:
        return failed(f"refuses tensors that are not contiguous: {error}", command)
    if close(found, subject.ordinary.output):
        return passed("not contiguous: the same")
    return failed("tensors that are not contiguous give another result", command)


@check("dense shapes")
def dense_shapes(subject: Subject) -> Verdict:
    """Several positions per sample give the gradient of the positions as samples, on one of the two class axes."""
    expected = subject.ordinary.gradient
    results = {"(N, K, d1)": _dense(subject, last=False), "(N, d1, K)": _dense(subject, last=True)}
    factors = {shape: scale_between(found, expected) for shape, found in results.items() if isinstance(found, Tensor)}
    right = [shape for shape, factor in factors.items() if factor is not None and abs(factor - 1) <= TOLERANCE]
    if "(N, K, d1)" in right:
        return passed("(N, K, d1): positions count like samples")
    if right:
        other = "is taken too and is silently something else" if "(N, K, d1)" in factors else "is refused"
        return noted(f"classes last: (N, d1, K) positions count like samples; (N, K, d1) {other}")
    weighed = [f"{shape}: a position weighs {factor:.3g} samples" for shape, factor in factors.items() if factor]
    if not factors:
        text = "takes (N, K) alone"
    elif weighed:
        text = weighed[0]
    else:
        text = f"takes {next(iter(factors))}, and is silently something else than the same positions as samples"
    if not subject.claims.dense:
        return noted(text) if factors else not_applicable(text)
    command = subject.command(
        f"r=lambda z: z.reshape(2,{POSITIONS},*z.shape[1:]); q=lambda z: r(z).movedim(-1,1)",
        show=(subject.value_text("q(s)", "q(t)", "r(y)"), subject.value_text()),
    )
    return failed(f"you say it is for positions; {text}", command)


def _dense(subject: Subject, *, last: bool) -> Tensor | None:
    """The gradient as rows, or None where the shape is refused."""
    scene = ordinary_scene()
    shape = (SAMPLES // POSITIONS, POSITIONS)
    dense = scene.map(lambda z: z.reshape(*shape, CLASSES) if last else z.reshape(*shape, CLASSES).movedim(-1, 1))
    try:
        gradient = subject.evaluate(replace(dense, labels=scene.labels.reshape(shape)), axis=-1 if last else 1).gradient
    except RefusedError:
        return None
    return (gradient if last else gradient.movedim(1, -1)).reshape(SAMPLES, CLASSES)
