"""How a loss behaves beside its number: what it writes, remembers and draws, and which shapes it takes."""

from dataclasses import replace

import torch
from torch import Tensor

from tpkd.check_loss.record import LossFinding
from tpkd.check_loss.subject import (
    CLASSES,
    SAMPLES,
    TOLERANCE,
    RefusedError,
    Scene,
    Subject,
    call,
    close,
    failed,
    not_applicable,
    noted,
    ordinary_scene,
    passed,
    scale_between,
    show,
)

POSITIONS = 4
"""Positions a sample in the dense shapes: the ordinary samples are two of them."""


def check_teacher_gradient(subject: Subject) -> LossFinding:
    """Whether a backward pass would train the teacher if somebody forgot to freeze it."""
    name = "gradient to the teacher"
    if not subject.loss.has("teacher"):
        return not_applicable(name, "it takes no teacher")
    found = subject.ordinary.teacher_gradient
    if found is None or not bool(found.ne(0).any()):
        return passed(name, "none flows")
    return noted(name, "one flows: run the teacher under torch.no_grad(), or detach its logits")


def check_untouched(subject: Subject) -> LossFinding:
    """The tensors that come in are the same afterwards."""
    name = "inputs"
    scene = ordinary_scene()
    given = Scene(1 * scene.student.clone().requires_grad_(), scene.teacher.clone(), scene.labels.clone())
    call(subject.loss, given)
    parts = ("student", "teacher", "labels")
    changed = [part for part in parts if not torch.equal(getattr(given, part), getattr(scene, part))]
    if not changed:
        return passed(name, "left as they were")
    letter = {"student": "s", "teacher": "t", "labels": "y"}[changed[0]]
    command = subject.command(
        f"before={letter}.clone()", subject.loss.text(), show(f"({letter}!=before).sum().item()", "0")
    )
    return failed(name, f"writes into the {' and the '.join(changed)}", command)


def check_repeatable(subject: Subject) -> LossFinding:
    """The same batch gives the same number again, from the same instance and under other random numbers."""
    name = "repeatable"
    if subject.memory:
        return noted(name, f"{subject.memory}; checks that compare results are left out")
    return passed(name, "the same bits again")


def check_memory_layout(subject: Subject) -> LossFinding:
    """Transposed and strided views give what contiguous tensors give."""
    name = "views in memory"
    scene = ordinary_scene()
    view = scene.map(lambda z: torch.stack([z, z], -1).transpose(0, 1).contiguous().transpose(0, 1)[..., 0])
    assert not view.student.is_contiguous()
    command = subject.command(
        "v=lambda z: torch.stack([z,z],-1).transpose(0,1).contiguous().transpose(0,1)[...,0]",
        show(f"{subject.loss.text('v(s)', 'v(t)')}.sum().item()", f"{subject.loss.text()}.sum().item()"),
    )
    try:
        found = call(subject.loss, view)
    except RefusedError as error:
        return failed(name, f"refuses tensors that are not contiguous: {error}", command)
    if close(found, subject.ordinary.output):
        return passed(name, "not contiguous: the same")
    return failed(name, "tensors that are not contiguous give another result", command)


def check_dense_shapes(subject: Subject) -> LossFinding:
    """Several positions a sample give the gradient of the positions as samples, on one of the two class axes."""
    name = "dense shapes"
    expected = subject.ordinary.gradient
    results = {"(N, K, d1)": _dense(subject, last=False), "(N, d1, K)": _dense(subject, last=True)}
    factors = {shape: scale_between(found, expected) for shape, found in results.items() if isinstance(found, Tensor)}
    right = [shape for shape, factor in factors.items() if factor is not None and abs(factor - 1) <= TOLERANCE]
    if "(N, K, d1)" in right:
        return passed(name, "(N, K, d1): positions count like samples")
    if right:
        other = "is taken too and is silently something else" if "(N, K, d1)" in factors else "is refused"
        return noted(name, f"classes last: (N, d1, K) positions count like samples; (N, K, d1) {other}")
    weighed = [f"{shape}: a position weighs {factor:.3g} samples" for shape, factor in factors.items() if factor]
    if not factors:
        text = "takes (N, K) alone"
    elif weighed:
        text = weighed[0]
    else:
        text = f"takes {next(iter(factors))}, and is silently something else than the same positions as samples"
    if not subject.claims.dense:
        return noted(name, text) if factors else not_applicable(name, text)
    command = subject.command(
        f"r=lambda z: z.reshape(2,{POSITIONS},*z.shape[1:]); q=lambda z: r(z).movedim(-1,1)",
        show(f"{subject.loss.text('q(s)', 'q(t)', 'r(y)')}.sum().item()", f"{subject.loss.text()}.sum().item()"),
    )
    return failed(name, f"you say it is for positions; {text}", command)


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
