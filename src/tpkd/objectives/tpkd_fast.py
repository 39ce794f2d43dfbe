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
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from tpkd.geometry.inputs import computation_dtype
from tpkd.objectives.injection import inject_gradients
from tpkd.objectives.reduction import check_class_axis, check_reduction, denominator, flat_labels, rowwise_loss
from tpkd.objectives.tpkd_traced import traced_threshold, traced_tpkd_loss

_LOG2_E = math.log2(math.e)
_LN_2 = math.log(2)
_SCRATCH_BYTES = 4_000_000
"""Working memory beside the gradient: large enough to hide the price of a call, small enough for a cache."""
_ROW_NUMBERS = 24
"""Numbers that are kept of every row while its block is worked on, at most."""
_AT_ONCE = 2**15
"""Elements up to which torch, too, leaves most operations to one core."""
_AT_ONCE_ROWS = 2**10
"""Rows up to which what NumPy spends on each of them does not count."""
_FEW = 256
"""Classes up to which sorting all of them costs less than stepping."""
_GROUP = 64
"""Neighbouring classes whose minimum stands for them where there are more."""
_FIRST_LOOK = 16
"""Minima of which the first bound is made."""


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
            functools.partial(traced_tpkd_loss, beta=beta),
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
    y, valid = flat_labels(labels, shape[:class_axis] + shape[class_axis + 1 :], shape[class_axis], ignore_index)
    count = denominator(len(z), valid, num_items) if reduction == "mean" else 1
    # A known weight of all rows goes straight into the gradient. Not in float16, which would lose small entries that a
    # loss scale saves: there, as with a weight for each row, the backward pass multiplies.
    is_weighted = isinstance(count, int) and reduction != "none" and z.dtype != torch.float16
    weight = 1 / int(count) if is_weighted else 1.0
    wanted = z.requires_grad and torch.is_grad_enabled()
    values, direction, total = values_and_direction(z.detach(), zt, y, valid, beta, weight, wanted)
    losses = total if is_weighted else values.clone()  # out of inference mode
    if direction is not None:
        losses = inject_gradients((z,), (direction,), losses)
    if is_weighted:
        return losses
    return losses.reshape(labels.shape) if reduction == "none" else losses.sum() / count


def _logit_rows(logits: Tensor, class_axis: int) -> Tensor:
    if logits.ndim == 2:
        return logits
    return logits.movedim(class_axis, -1).reshape(-1, logits.shape[class_axis])


def values_and_direction(
    student: Float[Tensor, "rows K"],
    teacher: Float[Tensor, "rows K"],
    labels: Int[Tensor, "rows"],
    valid: Tensor | None,
    beta: float,
    weight: float,
    wanted: bool,
    *,
    overwrite: bool = False,
) -> tuple[Float[Tensor, "rows"], Float[Tensor, "rows K"] | None, Float[Tensor, ""]]:
    """The loss of every row, `weight` times its direction in the dtype of the student, and `weight` times all losses.

    Losses and directions are zero where not valid. There is no direction unless one is `wanted`; with `overwrite` it
    takes the place of the student. Of the losses nothing is recorded: they may be in inference mode.

    Example:
        >>> student, teacher = torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> values_and_direction(student, teacher, torch.tensor([0]), None, 0.5, 1.0, True)[1]
        tensor([[-0.1521,  0.2234, -0.0712]])
    """
    given = (student, teacher, labels, valid, beta, weight, wanted)
    small = student.is_cpu and student.numel() <= _AT_ONCE and len(student) <= _AT_ONCE_ROWS and not overwrite
    with np.errstate(all="ignore"):  # as torch does
        return (_at_once(*given) if small else None) or _by_blocks(*given, overwrite)


def _at_once(
    student: Tensor, teacher: Tensor, labels: Tensor, valid: Tensor | None, beta: float, weight: float, wanted: bool
) -> tuple[Tensor, Tensor | None, Tensor] | None:
    """A batch so small that calls cost more than what they do: by NumPy, whose calls cost less.

    Where the losses or their sum are not finite nothing is returned: `_by_blocks` knows what infinite logits mean.
    """
    dtype = computation_dtype(student, teacher)
    memory = torch.empty((2, *student.shape), dtype=dtype, device="cpu")
    if student.dtype == teacher.dtype == dtype:
        r, q = memory.numpy()
        np.copyto(r, student.resolve_neg().numpy())
        np.copyto(q, teacher.resolve_neg().numpy())
    else:
        memory[0].copy_(student)
        memory[1].copy_(teacher)
    spare = torch.empty(student.shape, dtype=dtype, device="cpu")
    values, residual, at_label = _losses_at_once(memory, spare.numpy(), labels.numpy(), beta)
    ignored = None if valid is None else ~valid.numpy()
    if ignored is not None:
        values[ignored] = 0
    total = float(np.add.reduce(values)) * weight
    if not math.isfinite(total):
        return None
    direction = None
    if wanted:
        in_place = student.dtype == dtype
        v = spare.numpy() if in_place else memory[1].numpy()
        _write_direction(v, memory.numpy(), spare, at_label, residual * weight, beta * weight)
        if ignored is not None:
            v[ignored] = 0
        if in_place:
            direction = spare
        else:
            del spare  # before the gradient is made: with both there would be more than KD holds
            direction = memory[1].to(student.dtype)
    return torch.from_numpy(values), direction, torch.scalar_tensor(total, dtype=dtype, device="cpu")


def _losses_at_once(
    memory: Tensor, spare: NDArray[Any], labels: NDArray[np.int64], beta: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.intp]]:
    """Turn the logits of both networks into r and q; return the losses, 1 - rho, and where the student's labels are."""
    both = memory.numpy()
    r, q = both
    entries, row_starts = both.reshape(-1), _row_starts(*both.shape)
    at_labels = labels + row_starts
    label_logits = entries.take(at_labels[0])
    entries[at_labels] = -np.inf
    at_largest = both.argmax(-1)
    at_largest += row_starts
    largest = entries.take(at_largest)
    both -= largest[..., np.newaxis]  # exact under any common shift
    log_ratio = np.subtract(q, r, out=spare)
    log_ratio.reshape(-1)[at_labels[0]] = 0
    torch.softmax(memory, -1, out=memory)
    log_r, log_q = np.log(entries.take(at_largest))
    values: NDArray[Any] = np.vecdot(q, log_ratio)
    values += log_q
    values -= log_r
    np.maximum(values, 0, out=values)
    values *= beta
    lag = largest[0] - label_logits  # log(1 - rho) - log rho
    lag -= log_r
    label_loss = np.logaddexp(lag, 0)
    values += label_loss
    lag -= label_loss
    return values, np.exp(lag, out=lag), at_labels[0]


def _write_direction(
    v: NDArray[Any], both: NDArray[Any], spare: Tensor, at_label: NDArray[np.intp], residual: NDArray[Any], beta: float
) -> None:
    """The direction from r, q and 1 - rho; `v` may be the place of `spare` or of q, and all of them are used up."""
    r, q = both
    u = np.subtract(r, q, out=q)
    np.copyto(spare.numpy(), u)
    zeta = _least_bound(spare)
    np.maximum(u, zeta, out=v)
    v *= beta
    residual = residual[:, np.newaxis]
    r *= residual
    v += r
    zeta *= beta
    zeta -= residual
    v.reshape(-1)[at_label] = zeta[:, 0]


@functools.lru_cache(maxsize=16)
def _row_starts(num_networks: int, num_rows: int, num_classes: int) -> NDArray[np.intp]:
    return np.arange(0, num_networks * num_rows * num_classes, num_classes).reshape(num_networks, num_rows)


def _by_blocks(
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    valid: Tensor | None,
    beta: float,
    weight: float,
    wanted: bool,
    overwrite: bool,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Any batch on any device, in blocks of rows that share one scratch memory."""
    num_rows, num_classes = student.shape
    dtype = computation_dtype(student, teacher)
    direction = None
    if wanted:
        direction = student if overwrite else torch.empty_like(student, memory_format=torch.contiguous_format)
    width = _scratch_width(num_classes)
    # The gradient is itself working memory where it has the dtype to compute in; sorting needs some in any case.
    sorts_apart = num_classes <= _FEW and student.dtype != dtype
    row_bytes = dtype.itemsize * ((3.05 if sorts_apart else 2.05) * width + _ROW_NUMBERS)
    rows = max(1, int(_SCRATCH_BYTES / row_bytes))
    rows = -(-num_rows // max(1, -(-num_rows // rows)))  # blocks of one size
    # Nothing here is recorded; saying so spares every operation its bookkeeping.
    with torch.inference_mode():
        # Student and teacher of a row stand side by side: threads share out rows, and whoever has a row in one
        # operation finds it in its own cache in the next.
        memory = student.new_empty((rows, 2, width), dtype=dtype)
        if width > num_classes:
            memory[:, 1, num_classes:].zero_()
        given = [student, teacher, labels.unsqueeze(-1)] + ([] if direction is None else [direction])
        if rows == num_rows:
            values = _block(memory, beta, weight, *given)
        else:
            blocks = zip(*(torch.split(tensor, rows) for tensor in given), strict=True)
            values = torch.cat([_block(memory, beta, weight, *block) for block in blocks])
        if valid is not None:
            ignored = ~valid.unsqueeze(-1)
            values.masked_fill_(ignored, 0.0)
            if direction is not None:
                direction.masked_fill_(ignored, 0.0)
    return values.squeeze(-1), direction, values.sum().mul_(weight)


def _scratch_width(num_classes: int) -> int:
    """Where there are many classes, rounded up to whole groups."""
    return num_classes if num_classes <= _FEW else -(-num_classes // _GROUP) * _GROUP


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

    `memory` has room for student and teacher.
    """
    num_rows, num_classes = student.shape
    memory = memory if num_rows == len(memory) else memory[:num_rows]
    spare = target if target is not None and target.dtype == memory.dtype else None
    both = memory[..., :num_classes]
    of_student, of_teacher = both.unbind(1)
    label_exponents, sums, expected = _exponentials(both, student, teacher, y, spare)
    sum_r, sum_q = sums.unbind(1)
    ratio = sum_r / sum_q
    conditional = torch.addcdiv(ratio.log(), expected, sum_q, value=_LN_2).clamp_min_(0.0)
    lag = torch.sub(sum_r.log(), label_exponents, alpha=_LN_2)  # log(1 - rho) - log rho
    # The default threshold of softplus costs 2e-9; at 40 its linear branch is exact in float64.
    values = torch.add(softplus(lag, threshold=40.0), conditional, alpha=beta)
    if target is None:
        return values
    # Equal logits have equal sums, and nothing left to learn: u is exactly 0.
    u = torch.addcmul(of_student, of_teacher, ratio, value=-1, out=of_teacher)
    zeta = _safe_threshold(u, memory, spare)
    residual, unit = lag.sigmoid_().mul_(weight), sum_r.reciprocal()
    # Rather not into u, which one thread has just looked through: the others would have to fetch it back.
    d = torch.maximum(u, zeta, out=u if spare is None else spare)
    v = torch.addcmul(of_student.mul_(residual * unit), d, unit, value=beta * weight, out=d)
    v.scatter_(-1, y, torch.addcmul(residual.neg_(), zeta, unit, value=beta * weight))
    if v is not target:
        target.copy_(v)
    return values


def _exponentials(
    both: Tensor, student: Tensor, teacher: Tensor, y: Tensor, spare: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Write multiples of r and q into `both`, by as few passes as possible.

    Return the student's exponents of the labels, the multiples, which are the sums, and the sum of q times the
    log-ratio to r.
    Without `spare`, log-ratios take the place of the student, which is read again.
    """
    of_student, of_teacher = both.unbind(1)
    label_logits = of_student.copy_(student).gather(-1, y)
    of_student.scatter_(-1, y, -torch.inf)
    of_teacher.copy_(teacher).scatter_(-1, y, -torch.inf)
    largest = both.amax(-1, keepdim=True)
    _to_exponents(both, largest)
    label_exponents = _to_exponents(label_logits, largest[:, 0])
    # nan where both are zero, as at the label; nansum leaves it out, and the sum of q tells of any other nan.
    log_ratio = torch.sub(of_teacher, of_student, out=of_student if spare is None else spare)
    if spare is not None:
        sums = both.exp2_().sum(-1, keepdim=True)
        return label_exponents, sums, log_ratio.mul_(of_teacher).nansum(-1, keepdim=True)
    expected = log_ratio.mul_(of_teacher.exp2_()).nansum(-1, keepdim=True)
    of_student.copy_(student).scatter_(-1, y, -torch.inf)
    _to_exponents(of_student, largest[:, 0]).exp2_()
    return label_exponents, both.sum(-1, keepdim=True), expected


def _to_exponents(logits: Tensor, largest: Tensor) -> Tensor:
    """Powers of two are half the price of e^x; the difference comes first: it is exact under any common shift."""
    return logits.sub_(largest).mul_(_LOG2_E)


def _safe_threshold(
    u: Float[Tensor, "rows K"], memory: Float[Tensor, "rows 2 width"], spare: Float[Tensor, "rows K"] | None
) -> Float[Tensor, "rows 1"]:
    """The root zeta, by steps until it stands still; by a fixed number of steps where no value may be read.

    `u` is the second of the two parts of `memory`, whose `width` is filled up to whole groups with zeros.
    """
    if u.device.type != "cpu":
        return traced_threshold(u)
    if u.shape[-1] <= _FEW:
        return torch.from_numpy(_least_bound(u.clone() if spare is None else spare.copy_(u)))
    num_rows, _, width = memory.shape
    num_groups = width // _GROUP
    minima = memory[:, 1].view(num_rows, num_groups, _GROUP).amin(-1)
    if num_groups < 2 * _FIRST_LOOK:
        few = minima.clone()
    else:
        few = minima[:, : num_groups // _FIRST_LOOK * _FIRST_LOOK].view(num_rows, -1, _FIRST_LOOK).amin(1)
    bound = _least_bound(few)
    groups = np.flatnonzero(minima.numpy() < bound)
    rows = groups // num_groups
    entries = memory.view(-1, _GROUP).numpy().take(groups + (rows + 1) * num_groups, axis=0)
    active = np.flatnonzero(entries < bound[rows])
    return torch.from_numpy(_descend(entries.ravel()[active], rows[active // _GROUP], num_rows))


def _least_bound(values: Float[Tensor, "rows M"]) -> NDArray[Any]:
    """The least of the upper bounds that these entries give, which are sorted in place; the root if they are all."""
    bounds = values.numpy()
    bounds.sort(axis=-1)  # vectorised, and some ten times faster than torch's
    values.cumsum_(-1)  # whose sum is faster than NumPy's
    bounds *= _shares(bounds.shape[-1], bounds.dtype)
    return np.minimum.reduce(bounds, -1, keepdims=True)


@functools.lru_cache(maxsize=64)
def _shares(number: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    return (1 / np.arange(2, number + 2)).astype(dtype)


def _descend(values: NDArray[Any], rows: NDArray[np.intp], num_rows: int) -> NDArray[Any]:
    """Newton's steps from a superset of the active entries, each with its row, until none of them drops out."""
    while True:
        sums = np.bincount(rows, weights=values, minlength=num_rows)
        zeta = sums / (np.bincount(rows, minlength=num_rows) + 1)
        active = values < zeta[rows]
        if active.all():
            return zeta.astype(values.dtype)[:, np.newaxis]
        values, rows = values[active], rows[active]
