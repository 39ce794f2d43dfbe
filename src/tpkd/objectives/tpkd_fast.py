"""The protected loss for a fraction of the price of ordinary distillation: one buffer, the gradient.

With the label left out of both softmaxes r and q, and u = r - q, the paper's direction is

    v_j = (1 - rho) r_j + beta max(u_j, zeta),    v_y = -(1 - rho) + beta zeta,

where zeta = -l <= 0 is the root of sum_j min(u_j - zeta, 0) = zeta. Two facts about the root carry this file:

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

The algorithm exists twice: compiled, one row at a time (`_kernel.c`), for the usual training dtypes on a CPU; and as
tensor code, a block of rows at a time (below), for accelerators, other dtypes, and where no C compiler was at hand.
What goes beyond the paper has one plain tensor code (`tpkd_traced.py`), here in blocks.
"""

import itertools

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import softplus

from tpkd.geometry.cone import safe_threshold
from tpkd.geometry.correct import check_support
from tpkd.geometry.inputs import can_read_values, computation_dtype
from tpkd.geometry.top_k import TopK
from tpkd.objectives.reduction import soft_rows
from tpkd.objectives.tpkd_kernel import Outcome, kernel_takes, kernel_values_and_direction
from tpkd.objectives.tpkd_traced import plain_values_and_direction

_SCRATCH_BYTES = 4_000_000
"""Working memory beside the gradient."""
_ROW_NUMBERS = 160
"""Numbers that are kept of every row while its block is worked on, at most."""
_PLAIN_BUFFERS = 12
"""Rows that the plain tensor code holds for each row of logits, at most; a truncated teacher takes some more."""
_LANES = 32
_FEW, _FEW_BLIND = 128, 1024
"""Classes that are sorted at once: blindly more, because there no step is saved, and an accelerator sorts quickly."""
_BLIND_STEPS = 8
"""Enough for a few 1e-8 of the largest entry, with 150,000 classes and all that are active in one lane."""


def values_and_direction(
    student: Float[Tensor, "rows K"],
    teacher: Float[Tensor, "rows K"] | TopK,
    labels: Shaped[Tensor, "..."],
    valid: Tensor | None,
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
    if kernel_takes(student, teacher, labels):
        found = kernel_values_and_direction(*given, temperature=temperature, overwrite=overwrite)
        if found is not None:
            return found
        labels, not_zero = soft_rows(labels, labels.shape, 1, torch.float32)
        check_support(labels > 0)
        counts = not_zero if valid is None else valid if not_zero is None else valid & not_zero
        given = (student, teacher, labels, counts, beta, weight, wanted)
        found = _by_blocks(*given, temperature=temperature, overwrite=overwrite)
        # As the kernel does: rows that were said to be ignored are not counted.
        return found._replace(ignored=int((~counts).sum()) if valid is None and counts is not None else 0)
    return _by_blocks(*given, temperature=temperature, overwrite=overwrite)


def _by_blocks(
    student: Tensor,
    teacher: Tensor | TopK,
    labels: Tensor,
    valid: Tensor | None,
    beta: float,
    weight: float,
    wanted: bool,
    *,
    temperature: float,
    overwrite: bool,
) -> Outcome:
    """Any batch on any device, in blocks of rows that share one scratch memory."""
    if isinstance(teacher, TopK) or labels.is_floating_point() or temperature != 1:
        return _plain_by_blocks(
            student, teacher, labels, valid, beta, weight, wanted, temperature=temperature, overwrite=overwrite
        )
    num_rows, num_classes = student.shape
    dtype = computation_dtype(student, teacher)
    direction = None
    if wanted:
        direction = student if overwrite else torch.empty_like(student, memory_format=torch.contiguous_format)
    # Two rows of scratch memory, and one more for what is made of them: log-ratios, active classes, or sorted ones.
    row_bytes = dtype.itemsize * (3.05 * num_classes + _ROW_NUMBERS)
    if _are_few(student):
        row_bytes += dtype.itemsize * 2 * num_classes  # indices while sorting, then prefix sums
    rows = max(1, int(_SCRATCH_BYTES / row_bytes))
    rows = -(-num_rows // max(1, -(-num_rows // rows)))  # blocks of equal size
    with torch.no_grad():
        # Student and teacher of a row are adjacent: threads divide the rows, so each finds its row in its own
        # cache again in the next operation.
        memory = student.new_empty((rows, 2, num_classes), dtype=dtype)
        given = [student, teacher, labels.unsqueeze(-1)] + ([] if direction is None else [direction])
        blocks = zip(*(torch.split(tensor, max(1, rows)) for tensor in given), strict=True)
        values = torch.cat([_block(memory, beta, weight, *block) for block in blocks])
        if valid is not None:
            ignored = ~valid.unsqueeze(-1)
            values.masked_fill_(ignored, 0.0)
            if direction is not None:
                direction.masked_fill_(ignored, 0.0)
    return Outcome(values.squeeze(-1), direction, values.sum().mul_(weight))


def _plain_by_blocks(
    student: Tensor,
    teacher: Tensor | TopK,
    labels: Tensor,
    valid: Tensor | None,
    beta: float,
    weight: float,
    wanted: bool,
    *,
    temperature: float,
    overwrite: bool,
) -> Outcome:
    """What goes beyond the paper, in blocks that keep the scratch memory of the plain tensor code bounded."""
    num_rows, num_classes = student.shape
    top_k = isinstance(teacher, TopK)
    dtype = computation_dtype(student, teacher.log_probs if isinstance(teacher, TopK) else teacher)
    rows = max(1, int(_SCRATCH_BYTES / (dtype.itemsize * (_PLAIN_BUFFERS + 4 * top_k) * num_classes)))
    direction = None
    if wanted:
        direction = student if overwrite else torch.empty_like(student, memory_format=torch.contiguous_format)
    values = [student.new_empty(0, dtype=dtype)]
    with torch.no_grad():
        for start in range(0, num_rows, rows):
            part = slice(start, start + rows)
            zt = teacher[part] if isinstance(teacher, TopK) else teacher[part].to(dtype)
            losses, found = plain_values_and_direction(
                student[part].to(dtype), zt, labels[part], beta, temperature, wanted, threshold
            )
            if valid is not None:
                losses = losses.masked_fill(~valid[part], 0.0)
            values.append(losses)
            if direction is not None and found is not None:
                found = found if valid is None else found.masked_fill(~valid[part].unsqueeze(-1), 0.0)
                direction[part] = found.mul_(weight)
        losses = torch.cat(values)
        return Outcome(losses, direction, losses.sum().mul_(weight))


def _block(
    memory: Tensor,
    beta: float,
    weight: float,
    student: Tensor,
    teacher: Tensor,
    y: Tensor,
    target: Tensor | None = None,
) -> Tensor:
    """Return the losses of some rows and write their weighted direction into `target`, which may be `student` itself.

    `memory` has room for both networks, of which it will hold multiples of r and q.
    """
    both = memory[: len(student)]
    r, q = both.unbind(1)
    r.copy_(student)
    q.copy_(teacher)
    label_logits = r.gather(-1, y)
    both.scatter_(-1, y.unsqueeze(1).expand(-1, 2, -1), -torch.inf)
    largest = both.amax(-1, keepdim=True)
    both.sub_(largest)  # exact under any common shift
    log_ratio = q - r
    sum_r, sum_q = both.exp_().sum(-1, keepdim=True).unbind(1)
    # nan where both are zero, as at the label; nansum skips it, and any other nan shows in the sum of q.
    expected = log_ratio.mul_(q).nansum(-1, keepdim=True)
    del log_ratio  # frees its memory for the next buffer
    ratio = sum_r / sum_q
    conditional = torch.addcdiv(ratio.log(), expected, sum_q).clamp_min_(0.0)
    lag = (largest[:, 0] - label_logits) + sum_r.log()  # log(1 - rho) - log rho
    # The default threshold of softplus costs 2e-9; at 40 its linear branch is exact in float64.
    values = torch.add(softplus(lag, threshold=40.0), conditional, alpha=beta)
    if target is None:
        return values
    # Equal logits have equal sums, and nothing left to learn: u is exactly 0.
    u = torch.addcmul(r, q, ratio, value=-1, out=q)
    zeta = threshold(u)
    d = torch.maximum(u, zeta, out=u)
    residual, unit = lag.sigmoid_().mul_(weight), sum_r.reciprocal()
    v = r.mul_(residual * unit).addcmul_(d, unit, value=beta * weight)
    v.scatter_(-1, y, torch.addcmul(residual.neg_(), zeta, unit, value=beta * weight))
    target.copy_(v)
    return values


def threshold(u: Float[Tensor, "rows K"], correct: int | Int[Tensor, "rows"] = 1) -> Float[Tensor, "rows 1"]:
    """The root zeta: at once for few classes, else by steps from the root of the least of each lane.

    `correct` is the number of correct classes. Steps are taken until none of them moves, or a fixed number of them
    where no value may be read.

    Example:
        >>> threshold(torch.tensor([[-0.6, -0.1, 0.7]]))
        tensor([[-0.3000]])
    """
    zero = u.new_zeros(len(u))
    if _are_few(u):
        return safe_threshold(zero, u, correct).unsqueeze(-1)
    may_look, height = can_read_values(u), u.shape[-1] // _LANES
    lanes = u[:, : height * _LANES].view(len(u), height, _LANES)
    upper = safe_threshold(zero, lanes.amin(1), correct).unsqueeze(-1)
    weight = correct.unsqueeze(-1) if isinstance(correct, Tensor) else correct
    active = torch.empty_like(u)
    for _ in itertools.count() if may_look else range(_BLIND_STEPS):
        torch.lt(u, upper, out=active)
        slope = active.sum(-1, keepdim=True).add_(weight)
        bound = active.mul_(u).sum(-1, keepdim=True).div_(slope)
        if may_look and not (bound < upper).any():
            break
        upper = torch.minimum(bound, upper)
    return upper


def _are_few(rows: Tensor) -> bool:
    return rows.shape[-1] <= (_FEW if can_read_values(rows) else _FEW_BLIND)
