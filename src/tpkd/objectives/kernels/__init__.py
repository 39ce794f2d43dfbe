"""The protected loss for a fraction of the price of ordinary distillation: one buffer, the gradient.

With the label left out of both softmaxes r and q, and u = r - q, the paper's direction is

    v_j = (1 - rho) r_j + beta max(u_j, zeta),    v_y = -(1 - rho) + beta zeta,

where zeta = -l <= 0 is the root of sum_j min(u_j - zeta, 0) = zeta. Two facts about the root carry this folder:

- Every set S of classes gives an upper bound sum_S u / (|S| + 1), and the active set {u < zeta} attains it.
- The step zeta <- sum_{u < zeta} u / (|{u < zeta}| + 1), Newton's on a convex function, descends from any upper bound
  to the root and is there after finitely many steps, because the active set can only shrink. A good bound to start
  from is the root of few classes: the least u of each of some lanes, into which the row is dealt out.

The root scales with u: r, u and zeta stay multiplied by the student's sum of exponentials, and no pass is spent on
dividing by it. Whatever zeta is, max(u_j, zeta) >= zeta holds bit by bit, so that v protects every margin by
construction.

Beyond the paper: with m correct classes the root is that of sum_j min(u_j - zeta, 0) = m zeta, and m takes the place
of 1 above; at a temperature T, u is T times the difference of the softened r and q; with a truncated teacher q is
completed by r.

The algorithm exists three times: in C, in Triton and as tensor code. `TAKES` says what each of the first two computes,
and the tensor code computes the rest.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.compiler import is_compiling, is_exporting
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from tpkd.geometry.top_k import TopK
from tpkd.objectives.kernels import cpu, gpu, tensor
from tpkd.objectives.kernels.batch import Batch, Outcome, parts_of


class Takes(NamedTuple):
    """What a code takes; everything at any temperature, with any strides and masks."""

    device: str
    student: tuple[torch.dtype, ...]
    teacher: tuple[torch.dtype, ...]
    top_k: bool
    soft_labels: bool


_ALL = (torch.float32, torch.bfloat16, torch.float16)
TAKES = {
    "cpu": Takes("CPU", student=_ALL[:2], teacher=_ALL, top_k=True, soft_labels=True),
    "gpu": Takes("NVIDIA, AMD", student=_ALL, teacher=_ALL, top_k=False, soft_labels=False),
}
"""The first that takes a batch, and is there, computes it; else the code `tensor` does."""


def code_for(
    student: Float[Tensor, "rows K"], teacher: Float[Tensor, "rows K"] | TopK, labels: Shaped[Tensor, "..."]
) -> str:
    """Which code computes this batch: `"cpu"`, `"gpu"` or `"tensor"`.

    Example:
        >>> code_for(torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3), torch.tensor([0, 1]))
        'tensor'
    """
    if is_exporting():  # an exported model runs without tpkd
        return "tensor"
    for name, code in (("cpu", cpu), ("gpu", gpu)):
        takes, parts = TAKES[name], parts_of(teacher)
        if (
            code.is_ready(student)  # first: a compiled graph checks in every call whatever is looked at
            and student.dtype in takes.student
            and parts[0].dtype in takes.teacher
            and (takes.top_k or len(parts) == 1)
            and (takes.soft_labels or not labels.is_floating_point())
            and _are_memory(student, *parts, labels)
        ):
            return name
    return "tensor"


def _are_memory(student: Tensor, *others: Tensor | None) -> bool:
    """Whether pointers on one device hold the values: subclasses may keep them elsewhere, zero tensors have none."""
    eager, device = not is_compiling(), student.device
    for one in (student, *others):
        if one is not None and (type(one) is not Tensor or one.device != device or (eager and one._is_zerotensor())):
            return False
    return not (eager and (torch.jit.is_tracing() or is_in_torch_dispatch_mode()))  # type: ignore


def values_and_direction(batch: Batch) -> Outcome:
    """The loss of every row, `weight` times its direction in the dtype of the student, and `weight` times all losses.

    Example:
        >>> student, teacher = torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> values_and_direction(Batch(student, teacher, torch.tensor([0]), None, 0.5, 1.0, True)).direction
        tensor([[-0.1521,  0.2234, -0.0712]])
    """
    student, teacher, labels, *others = batch
    name = code_for(student, teacher, labels)
    if name != "tensor" and is_compiling():
        operands = (student, parts_of(teacher), labels, *others[:-1])
        losses, direction = torch.ops.tpkd.losses_and_directions(*operands)
        return Outcome(losses, direction if batch.wanted else None, losses.sum() * batch.weight)
    codes = {"cpu": cpu.values_and_direction, "gpu": gpu.values_and_direction, "tensor": tensor.values_and_direction}
    return codes[name](batch)


def _operator(student: Tensor, teacher: list[Tensor], *others: object) -> tuple[Tensor, Tensor]:
    """The loss as one operator, which a compiled graph calls without looking inside. No direction is empty."""
    given = teacher[0] if len(teacher) == 1 else TopK(*teacher)
    code = cpu if student.is_cpu and cpu.has_kernel() else gpu
    found = code.values_and_direction(Batch(student, given, *others))  # type: ignore[arg-type]
    return found.losses, student.new_empty(0) if found.direction is None else found.direction


def _shapes(student: Tensor, *others: object) -> tuple[Tensor, Tensor]:
    # Not len(), which would bind the graph to one batch size.
    losses = student.new_empty(student.shape[0], dtype=torch.float32)
    return losses, student.new_empty(student.shape if others[-2] else 0)


if not hasattr(torch.ops.tpkd, "losses_and_directions"):  # operators outlive a module that is loaded again
    # Not custom_op: its checks on every call take as long as a small batch.
    torch.library.define(
        "tpkd::losses_and_directions",
        "(Tensor student, Tensor?[] teacher, Tensor labels, Tensor? valid, float beta, float weight, bool wanted,"
        " float temperature) -> (Tensor, Tensor)",
    )
    torch.library.impl("tpkd::losses_and_directions", ("CPU", "CUDA"), _operator)
    torch.library.register_fake("tpkd::losses_and_directions", _shapes)
