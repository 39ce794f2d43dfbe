"""The protected loss at the price of ordinary distillation: two exponentials a class, and one buffer, the gradient.

With the label left out of both softmaxes r and q, and u = r - q, the paper's direction is

    v_j = (1 - rho) r_j + beta max(u_j, zeta),    v_y = -(1 - rho) + beta zeta,

where zeta = -l <= 0 is the root of sum_j min(u_j - zeta, 0) = zeta. Three facts about the root carry this file:

- Every set S of classes gives an upper bound sum_S u / (|S| + 1), and the active set {u < zeta} attains it.
- The step zeta <- sum_{u < zeta} u / (|{u < zeta}| + 1), Newton's on a convex function, descends from any upper bound
  to the root and is there after finitely many steps, because the active set can only shrink.
- Classes at or above an upper bound are not active: with a good bound, few are left to look at.

The root scales with u: where classes are many, r, u and zeta stay multiplied by the student's sum of exponentials, and
no pass is spent on dividing by it. Whatever zeta is, max(u_j, zeta) >= zeta holds bit by bit, so that v protects every
margin by construction.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from tpkd.geometry.inputs import computation_dtype
from tpkd.objectives.injection import inject_direction, inject_gradients
from tpkd.objectives.reduction import (
    Rows,
    check_class_axis,
    check_reduction,
    denominator,
    look_up_labels,
    rowwise_loss,
)

_LOG2_E = math.log2(math.e)
_LN_2 = math.log(2)
_LOWEST = -1e38
"""A logarithm of zero that can be computed with."""
_SCRATCH_BYTES = 4_000_000
"""Working memory beside the gradient: large enough to hide the price of a call, small enough for a cache."""
_ROW_NUMBERS = 24
"""Numbers that are kept of every row while its block is worked on, at most."""
_WORTH_SPLITTING = 2**16
"""Half-precision elements from which a second block costs little time."""
_FEW = 256
"""Classes up to which calls cost more than passes, and sorting all of them less than stepping."""
_GROUP = 64
"""Neighbouring classes whose minimum stands for them where there are more."""
_FIRST_LOOK = 16
"""Minima of which the first bound is made."""
_Parts = Sequence[Float[Tensor, "rows K"]]
"""Student and teacher."""
_Softmaxes = tuple[Float[Tensor, "rows 1"], Float[Tensor, "rows 1"], tuple[Tensor, Tensor] | None]
"""The conditional loss, log(1 - rho) - log rho; of unnormalised softmaxes the sum of r, and its ratio to that of q."""
_TRACED_GUESSES = (0.5, 0.625, 0.75, 0.875)
"""Where no value may be read: shares of the least u, between which and the least u itself the root lies."""
_TRACED_STEPS = 6
"""Newton steps there; each divides the residual of the equation times the slope, active classes + 1, by at least 4."""


def fast_tpkd_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    labels: Int[Tensor, "..."],
    beta: float,
    ignore_index: int,
    reduction: str,
    num_items: int | Tensor | None,
) -> Float[Tensor, "..."]:
    """What `tpkd_loss` returns; its arguments, and `beta` already checked.

    Example:
        >>> student = torch.tensor([[2.0, 0.5, -1.0, 0.0]], requires_grad=True)
        >>> teacher, labels = torch.tensor([[1.0, 0.0, 0.5, -1.0]]), torch.tensor([0])
        >>> fast_tpkd_loss(student, teacher, labels, 0.5, -100, "mean", None).detach()
        tensor(0.6084)
    """
    if torch.compiler.is_compiling():
        return rowwise_loss(
            functools.partial(_traced_loss, beta=beta),
            student_logits,
            {"teacher_logits": teacher_logits},
            labels,
            ignore_index=ignore_index,
            reduction=reduction,
            num_items=num_items,
            min_classes=3,
        )
    check_reduction(reduction, num_items)
    class_axis = check_class_axis(student_logits, {"teacher_logits": teacher_logits}, min_classes=3)
    shape = student_logits.shape
    z, zt = _logit_rows(student_logits, class_axis), _logit_rows(teacher_logits.detach(), class_axis)
    y, valid, label_logits = look_up_labels(
        z.detach(), labels, shape[:class_axis] + shape[class_axis + 1 :], ignore_index
    )
    wants_gradient = z.requires_grad and torch.is_grad_enabled()
    count = denominator(len(z), valid, num_items) if reduction == "mean" else 1
    # A known weight of all rows goes straight into the gradient. Not in float16, which would lose small entries that a
    # loss scale saves: there, as with a weight for each row, the backward pass multiplies.
    if isinstance(count, int) and reduction != "none" and z.dtype != torch.float16:
        values, direction = values_and_direction(
            z.detach(), zt, y, label_logits, valid, beta, 1 / count, wants_gradient
        )
        total = values.mean() if count == len(y) else values.sum().mul_(1 / count)
        return total if direction is None else inject_gradients((z,), (direction,), total)
    values, direction = values_and_direction(z.detach(), zt, y, label_logits, valid, beta, 1.0, wants_gradient)
    losses = values.squeeze(-1).clone()  # out of inference mode
    if direction is not None:
        losses = inject_gradients((z,), (direction,), losses)
    return losses.reshape(labels.shape) if reduction == "none" else losses.sum() / count


def _logit_rows(logits: Tensor, class_axis: int) -> Tensor:
    if logits.ndim == 2:
        return logits
    return logits.movedim(class_axis, -1).reshape(-1, logits.shape[class_axis])


def values_and_direction(
    student: Float[Tensor, "rows K"],
    teacher: Float[Tensor, "rows K"],
    labels: Int[Tensor, "rows"],
    label_logits: Float[Tensor, "rows 1"],
    valid: Tensor | None,
    beta: float,
    weight: float,
    wants_gradient: bool,
    *,
    overwrite: bool = False,
) -> tuple[Float[Tensor, "rows 1"], Float[Tensor, "rows K"] | None]:
    """The loss of every row, and `weight` times its direction in the dtype of the student; zeros where not valid.

    `label_logits` are the student's. Blocks of rows share one scratch memory. With `overwrite` the direction takes the
    place of the student. The values are made in inference mode.

    Example:
        >>> student, teacher = torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> values_and_direction(student, teacher, torch.tensor([0]), student[:, :1], None, 0.5, 1.0, True)[1]
        tensor([[-0.1521,  0.2234, -0.0712]])
    """
    num_rows, num_classes = student.shape
    dtype = computation_dtype(student, teacher)
    direction = None
    if wants_gradient:
        direction = student if overwrite else torch.empty_like(student, memory_format=torch.contiguous_format)
    # The gradient is itself working memory where it has the dtype to compute in; many classes do without.
    in_place = direction is not None and direction.dtype == dtype
    buffers = 3 if num_classes <= _FEW and not in_place else 2
    width = _scratch_width(num_classes)
    row_bytes = dtype.itemsize * ((buffers + 0.05) * width + _ROW_NUMBERS)
    rows = max(1, int(_SCRATCH_BYTES / row_bytes))
    if buffers == 3 and student.numel() >= _WORTH_SPLITTING:
        rows = min(rows, -(-2 * num_rows // 3))  # three buffers of twice the width would be more than KD holds
    rows = -(-num_rows // max(1, -(-num_rows // rows)))  # blocks of one size
    # Nothing here is recorded; saying so spares every operation its bookkeeping.
    with torch.inference_mode():
        # Student and teacher of a row stand side by side: threads share out rows, and whoever has a row in one
        # operation finds it in its own cache in the next.
        scratch = student.new_empty((rows, 2, width), dtype=dtype)
        if width > num_classes:
            scratch[:, 1, num_classes:].zero_()
        spare = student.new_empty((rows, num_classes), dtype=dtype) if buffers == 3 else None
        given = [student, teacher, labels.unsqueeze(-1), label_logits] + ([] if direction is None else [direction])
        if rows == num_rows:
            values = _block(scratch, spare, beta, weight, *given)
        else:
            blocks = zip(*(torch.split(tensor, rows) for tensor in given), strict=True)
            values = torch.cat([_block(scratch, spare, beta, weight, *block) for block in blocks])
        if valid is not None:
            ignored = ~valid.unsqueeze(-1)
            values.masked_fill_(ignored, 0.0)
            if direction is not None:
                direction.masked_fill_(ignored, 0.0)
    return values, direction


def _scratch_width(num_classes: int) -> int:
    """Where there are many classes, rounded up to whole groups."""
    return num_classes if num_classes <= _FEW else -(-num_classes // _GROUP) * _GROUP


def _block(
    memory: Tensor,
    spare: Tensor | None,
    beta: float,
    weight: float,
    student: Tensor,
    teacher: Tensor,
    y: Tensor,
    label_logits: Tensor,
    target: Tensor | None = None,
) -> Tensor:
    """Return the losses of some rows and write their weighted direction into `target`.

    `memory` has room for student and teacher, and `spare` for one more; without it `target` is used where it has the
    dtype. `target` may be `student` itself.
    """
    num_rows, num_classes = student.shape
    if num_rows < len(memory):
        memory, spare = memory[:num_rows], None if spare is None else spare[:num_rows]
    if spare is None and target is not None and target.dtype == memory.dtype:
        spare = target
    both = memory if memory.shape[-1] == num_classes else memory[..., :num_classes]
    of_student, of_teacher = parts = both.unbind(1)
    if num_classes <= _FEW:
        assert spare is not None
        conditional, lag, scale = _softmaxes_of_few(both, parts, student, teacher, y, label_logits, spare)
    else:
        conditional, lag, scale = _softmaxes_of_many(both, parts, student, teacher, y, label_logits, spare)
    # The default threshold of softplus costs 2e-9; at 40 its linear branch is exact in float64.
    values = torch.add(softplus(lag, threshold=40.0), conditional.clamp_min_(0.0), alpha=beta)
    if target is None:
        return values
    # Equal logits have equal sums, and nothing left to learn: u is exactly 0.
    if scale is None:
        u = torch.sub(of_student, of_teacher, out=of_teacher)
    else:
        u = torch.addcmul(of_student, of_teacher, scale[1], value=-1, out=of_teacher)
    zeta = _safe_threshold(u, memory, spare)
    residual = lag.sigmoid_().mul_(weight)
    # Rather not into u, which one thread has just looked through: the others would have to fetch it back.
    d = torch.maximum(u, zeta, out=u if spare is None else spare)
    if scale is None:
        v = torch.add(of_student.mul_(residual), d, alpha=beta * weight, out=d)
        v_label = zeta.mul(beta * weight).sub_(residual)
    else:
        unit = scale[0].reciprocal()
        v = torch.addcmul(of_student.mul_(residual * unit), d, unit, value=beta * weight, out=d)
        v_label = torch.addcmul(residual.neg_(), zeta, unit, value=beta * weight)
    v.scatter_(-1, y, v_label)
    if v is not target:
        target.copy_(v)
    return values


def _softmaxes_of_few(
    both: Tensor, parts: _Parts, student: Tensor, teacher: Tensor, y: Tensor, label_logits: Tensor, spare: Tensor
) -> _Softmaxes:
    """Write r and q into the parts of `both`, by as few calls as possible: they cost more than what they do."""
    of_student, of_teacher = parts
    _copy_masked(parts, student, teacher, y)
    largest = of_student.amax(-1, keepdim=True)
    # Finite also where both are zero, at the label and at any class that both rule out; nan stays nan.
    torch.log_softmax(both, -1, out=both).clamp_min_(_LOWEST)
    log_ratio = torch.sub(of_teacher, of_student, out=spare)
    # log(1 - rho) - log rho, from differences to the largest other logit: exact under any common shift.
    lag = torch.sub(largest, label_logits).sub_(of_student.amax(-1, keepdim=True))
    both.mul_(_LOG2_E).exp2_()  # half the price of e^x, and of the largest entries it keeps every digit
    return log_ratio.mul_(of_teacher).sum(-1, keepdim=True), lag, None


def _softmaxes_of_many(
    both: Tensor,
    parts: _Parts,
    student: Tensor,
    teacher: Tensor,
    y: Tensor,
    label_logits: Tensor,
    spare: Tensor | None,
) -> _Softmaxes:
    """Write multiples of r and q into the parts of `both`, by as few passes as possible; the multiples are the sums.

    Without `spare`, log-ratios take the place of the student, which is read again.
    """
    of_student, of_teacher = parts
    _copy_masked(parts, student, teacher, y)
    # Powers of two: half the price of e^x, and one fused multiply-add keeps every digit of a difference to the largest.
    shift = both.amax(-1, keepdim=True).mul_(-_LOG2_E)
    _to_exponents(both, shift)
    # nan where both are zero, as at the label; nansum leaves it out, and the sum of q tells of any other nan.
    log_ratio = torch.sub(of_teacher, of_student, out=of_student if spare is None else spare)
    if spare is None:
        expected = log_ratio.mul_(of_teacher.exp2_()).nansum(-1, keepdim=True)
        _mask(of_student.copy_(student), y)
        _to_exponents(of_student, shift[:, 0]).exp2_()
        sums = both.sum(-1, keepdim=True)
    else:
        sums = both.exp2_().sum(-1, keepdim=True)
        expected = log_ratio.mul_(of_teacher).nansum(-1, keepdim=True)
    sum_r, sum_q = sums.unbind(1)
    ratio = sum_r / sum_q
    conditional = torch.addcdiv(ratio.log(), expected, sum_q, value=_LN_2)
    label_exponents = torch.add(shift[:, 0], label_logits, alpha=_LOG2_E)
    lag = torch.sub(sum_r.log(), label_exponents, alpha=_LN_2)
    return conditional, lag, (sum_r, ratio)


def _to_exponents(logits: Tensor, shift: Tensor) -> Tensor:
    return torch.add(shift, logits, alpha=_LOG2_E, out=logits)


def _copy_masked(parts: _Parts, student: Tensor, teacher: Tensor, y: Tensor) -> None:
    for part, logits in zip(parts, (student, teacher), strict=True):
        _mask(part.copy_(logits), y)


def _mask(logits: Tensor, y: Tensor) -> None:
    logits.scatter_(-1, y, -torch.inf)


def _safe_threshold(
    u: Float[Tensor, "rows K"], memory: Float[Tensor, "rows 2 width"], spare: Float[Tensor, "rows K"] | None
) -> Float[Tensor, "rows 1"]:
    """The root zeta, by steps until it stands still; by a fixed number of steps where no value may be read.

    `u` is the second of the two parts of `memory`, whose `width` is filled up to whole groups with zeros.
    """
    if u.device.type != "cpu":
        return _traced_threshold(u)
    if u.shape[-1] <= _FEW:
        assert spare is not None
        return _least_bound(spare.copy_(u))
    num_rows, _, width = memory.shape
    num_groups = width // _GROUP
    minima = memory[:, 1].view(num_rows, num_groups, _GROUP).amin(-1)
    if num_groups < 2 * _FIRST_LOOK:
        few = minima.clone()
    else:
        few = minima[:, : num_groups // _FIRST_LOOK * _FIRST_LOOK].view(num_rows, -1, _FIRST_LOOK).amin(1)
    bound = _least_bound(few).numpy()
    groups = np.flatnonzero(minima.numpy() < bound)
    rows = groups // num_groups
    entries = memory.view(-1, _GROUP).numpy().take(groups + (rows + 1) * num_groups, axis=0)
    active = np.flatnonzero(entries < bound[rows])
    return torch.from_numpy(_descend(entries.ravel()[active], rows[active // _GROUP], num_rows))


def _least_bound(values: Float[Tensor, "rows M"]) -> Float[Tensor, "rows 1"]:
    """The least of the upper bounds that these entries give, which are sorted in place; the root if they are all."""
    values.numpy().sort(axis=-1)  # vectorised, and some ten times faster than torch's
    return values.cumsum_(-1).div_(_counts(values.shape[-1], values.dtype)).amin(-1, keepdim=True)


@functools.cache
def _counts(number: int, dtype: torch.dtype) -> Tensor:
    return torch.arange(2, number + 2, dtype=dtype)


def _descend(values: NDArray[Any], rows: NDArray[np.intp], num_rows: int) -> NDArray[Any]:
    """Newton's steps from a superset of the active entries, each with its row, until none of them drops out."""
    while True:
        sums = np.bincount(rows, weights=values, minlength=num_rows)
        zeta = sums / (np.bincount(rows, minlength=num_rows) + 1)
        active = values < zeta[rows]
        if active.all():
            return zeta.astype(values.dtype)[:, np.newaxis]
        values, rows = values[active], rows[active]


def _traced_threshold(u: Float[Tensor, "rows K"]) -> Float[Tensor, "rows 1"]:
    """A fixed number of steps from the best bound that a few guesses between minimum / 2 and minimum give."""
    least = u.amin(-1, keepdim=True)
    bounds = [_next_bound(u, least * guess) for guess in _TRACED_GUESSES]
    upper = functools.reduce(torch.minimum, bounds)
    for _ in range(_TRACED_STEPS):
        upper = torch.minimum(_next_bound(u, upper), upper)
    return upper


def _next_bound(u: Float[Tensor, "rows K"], guess: Float[Tensor, "rows 1"]) -> Float[Tensor, "rows 1"]:
    active = u < guess
    return torch.where(active, u, 0.0).sum(-1, keepdim=True) / (active.sum(-1, keepdim=True) + 1)


def _traced_loss(rows: Rows, *, beta: float) -> Float[Tensor, "rows"]:
    """The same loss as plain tensor code, for a compiler to fuse."""
    z, (zt,), y = rows.student.detach(), rows.others, rows.labels.unsqueeze(-1)
    is_label = torch.arange(z.shape[-1], device=z.device) == y
    masked = [torch.where(is_label, -torch.inf, logits) for logits in (z, zt)]
    largest_r, largest_q = (logits.amax(-1, keepdim=True) for logits in masked)
    exp_r, exp_q = (masked[0] - largest_r).exp(), (masked[1] - largest_q).exp()
    sum_r, sum_q = exp_r.sum(-1, keepdim=True), exp_q.sum(-1, keepdim=True)
    r, q = exp_r / sum_r, exp_q / sum_q
    log_ratio = (zt - largest_q) - (z - largest_r)
    expected = torch.where(q > 0, q * log_ratio, 0.0).sum(-1, keepdim=True)
    conditional = (expected + sum_r.log() - sum_q.log()).clamp_min(0.0)
    lag = (largest_r - z.gather(-1, y)) + sum_r.log()
    values = (softplus(lag, threshold=40.0) + beta * conditional).squeeze(-1)
    if not rows.student.requires_grad:
        return values
    u = r - q
    zeta = _traced_threshold(u)
    residual = lag.sigmoid()
    others = residual * r + beta * torch.maximum(u, zeta)
    return inject_direction(rows.student, torch.where(is_label, beta * zeta - residual, others), values)
