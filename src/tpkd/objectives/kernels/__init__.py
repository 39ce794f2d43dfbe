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

The algorithm exists three times; the first that takes a batch computes it:

| code     | device                | student                    | teacher                    | labels        |
|----------|-----------------------|----------------------------|----------------------------|---------------|
| `cpu`    | CPU, in C             | float32, bfloat16          | those, float16; also top k | classes, soft |
| `gpu`    | NVIDIA, AMD in Triton | float32, bfloat16, float16 | the same                   | classes       |
| `tensor` | any                   | any                        | any                        | any           |
"""

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from tpkd.geometry.correct import check_support
from tpkd.geometry.top_k import TopK
from tpkd.objectives.kernels import cpu, gpu, tensor
from tpkd.objectives.kernels.tensor import Outcome
from tpkd.objectives.reduction import soft_rows


def code_for(
    student: Float[Tensor, "rows K"], teacher: Float[Tensor, "rows K"] | TopK, labels: Shaped[Tensor, "..."]
) -> str:
    """Which code computes this batch: `"cpu"`, `"gpu"` or `"tensor"`.

    Example:
        >>> code_for(torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3), torch.tensor([0, 1]))
        'tensor'
    """
    if cpu.takes(student, teacher, labels):
        return "cpu"
    return "gpu" if gpu.takes(student, teacher, labels) else "tensor"


def values_and_direction(
    student: Float[Tensor, "rows K"],
    teacher: Float[Tensor, "rows K"] | TopK,
    labels: Shaped[Tensor, "..."],
    valid: Bool[Tensor, "rows"] | None,
    beta: float,
    weight: float,
    wanted: bool,
    *,
    temperature: float = 1.0,
    overwrite: bool = False,
) -> Outcome:
    """The loss of every row, `weight` times its direction in the dtype of the student, and `weight` times all losses.

    Labels are classes `(rows,)` or probabilities `(rows, K)`. Losses and directions are zero where not valid. There is
    no direction unless one is `wanted`; with `overwrite` it takes the place of the student.

    Example:
        >>> student, teacher = torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> values_and_direction(student, teacher, torch.tensor([0]), None, 0.5, 1.0, True).direction
        tensor([[-0.1521,  0.2234, -0.0712]])
    """
    given = (student, teacher, labels, valid, beta, weight, wanted)
    code = code_for(student, teacher, labels)
    if code == "tensor":
        return tensor.values_and_direction(*given, temperature=temperature, overwrite=overwrite)
    if torch.compiler.is_compiling():
        whole, parts = (None, cpu.top_k_parts(teacher)) if isinstance(teacher, TopK) else (teacher, (None,) * 4)
        operands = (student, whole, labels, valid, *parts, beta, temperature, weight, wanted)
        losses, direction = torch.ops.tpkd.losses_and_directions(*operands)
        return Outcome(losses, direction if wanted else None, losses.sum() * weight)
    return _compute(*given, temperature, overwrite)


def _compute(
    student: Tensor,
    teacher: Tensor | TopK,
    labels: Tensor,
    valid: Tensor | None,
    beta: float,
    weight: float,
    wanted: bool,
    temperature: float,
    overwrite: bool,
) -> Outcome:
    """By the kernel of the device, which takes the batch; but for soft labels of more classes than it has room for."""
    settings = (labels, valid, beta, weight, wanted)
    if not (student.is_cpu and cpu.has_kernel()):
        assert isinstance(teacher, Tensor)
        return gpu.values_and_direction(student, teacher, *settings, temperature=temperature, overwrite=overwrite)
    found = cpu.values_and_direction(student, teacher, *settings, temperature=temperature, overwrite=overwrite)
    if found is not None:
        return found
    labels, not_zero = soft_rows(labels, labels.shape, 1, torch.float32)
    check_support(labels > 0)
    counts = not_zero if valid is None else valid if not_zero is None else valid & not_zero
    given = (student, teacher, labels, counts, beta, weight, wanted)
    found = tensor.values_and_direction(*given, temperature=temperature, overwrite=overwrite)
    # As the kernel does: rows that were said to be ignored are not counted.
    return found._replace(ignored=int((~counts).sum()) if valid is None and counts is not None else 0)


def _operator(
    student: Tensor,
    teacher: Tensor | None,
    labels: Tensor,
    valid: Tensor | None,
    top_log_probs: Tensor | None,
    top_indices: Tensor | None,
    label_log_probs: Tensor | None,
    rest_log_probs: Tensor | None,
    beta: float,
    temperature: float,
    weight: float,
    wanted: bool,
) -> tuple[Tensor, Tensor]:
    """The loss as one operator, which a compiled graph calls without looking inside. No direction is empty."""
    given: Tensor | TopK | None = teacher
    if given is None:
        assert top_log_probs is not None
        assert top_indices is not None
        given = TopK(top_log_probs, top_indices, label_log_probs, rest_log_probs)
    found = _compute(student, given, labels, valid, beta, weight, wanted, temperature, False)
    return found.losses, student.new_empty(0) if found.direction is None else found.direction


def _shapes(student: Tensor, *others: object) -> tuple[Tensor, Tensor]:
    # Not len(), which would bind the graph to one batch size.
    losses = student.new_empty(student.shape[0], dtype=torch.float32)
    return losses, student.new_empty(student.shape if others[-1] else 0)


if not hasattr(torch.ops.tpkd, "losses_and_directions"):  # operators outlive a module that is loaded again
    # Not custom_op: its checks on every call take as long as a small batch.
    torch.library.define(
        "tpkd::losses_and_directions",
        "(Tensor student, Tensor? teacher, Tensor labels, Tensor? valid, Tensor? top_log_probs, Tensor? top_indices,"
        " Tensor? label_log_probs, Tensor? rest_log_probs, float beta, float temperature, float weight, bool wanted)"
        " -> (Tensor, Tensor)",
    )
    torch.library.impl("tpkd::losses_and_directions", ("CPU", "CUDA"), _operator)
    torch.library.register_fake("tpkd::losses_and_directions", _shapes)
