"""The protected loss as tensor code: any device, any dtype, every kind of label and teacher, eager and compiled.

Eager code works in place on blocks of rows that share one scratch memory. A compiler fuses operations by itself, so
for it all rows are one block; it makes no difference to it which operations are in place.
"""

import itertools

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn.functional import softplus

from tpkd.geometry.cone import safe_threshold
from tpkd.geometry.correct import correct_mask
from tpkd.geometry.inputs import can_read_values, computation_dtype
from tpkd.geometry.teaching import completed_pair
from tpkd.geometry.top_k import TopK
from tpkd.objectives.kernels.batch import Batch, Outcome, parts_of

_SCRATCH_BYTES, _SCRATCH_BYTES_OFF_CPU = 4_000_000, 64_000_000
"""Working memory beside the gradient: what a CPU keeps close; more where each operation takes a launch."""
_ROW_NUMBERS = 160
"""Numbers that are kept of every row while its block is worked on, at most."""
_LANES = 32
_FEW = 128
"""Classes that are sorted at once."""


def values_and_direction(batch: Batch) -> Outcome:
    """See `tpkd.objectives.kernels.values_and_direction`; in a compiled graph the direction keeps the wider dtype."""
    losses, direction = _block(None, batch) if is_compiling() else _blocks(batch)
    if batch.valid is not None:
        ignored = ~batch.valid.unsqueeze(-1)
        losses.masked_fill_(ignored, 0.0)
        direction = None if direction is None else direction.masked_fill_(ignored, 0.0)
    return Outcome(losses.squeeze(-1), direction, losses.sum().mul_(batch.weight))


@torch.no_grad()
def _blocks(batch: Batch) -> tuple[Float[Tensor, "rows 1"], Float[Tensor, "rows K"] | None]:
    student, teacher, labels, *_ = batch
    direction, dtype = batch.direction_memory(), computation_dtype(student, parts_of(teacher)[0])
    rows = _rows_of_a_block(batch, dtype)
    # Student and teacher of a row are adjacent: threads divide the rows, so each finds its row in its own cache again
    # in the next operation.
    memory = student.new_empty((rows, 2, student.shape[1]), dtype=dtype)
    found: list[Tensor] = []
    given = (student, teacher, labels, student if direction is None else direction)
    # One call splits a tensor into all its parts; slices of it would take a call each.
    for z, zt, y, target in [given] if rows == len(student) else zip(*(one.split(rows) for one in given), strict=True):
        values, block = _block(memory, batch._replace(student=z, teacher=zt, labels=y))
        found.append(values)
        if block is not None:
            target.copy_(block)
    return torch.cat(found), direction


def _rows_of_a_block(batch: Batch, dtype: torch.dtype) -> int:
    """As many as the scratch memory has room for, in blocks of equal size."""
    num_rows, num_classes = batch.student.shape
    # Two rows of scratch memory, and one more for what is made of them: log-ratios, active classes, or sorted ones.
    buffers = 3.05 + (2 if num_classes <= _FEW else 0)  # indices while sorting, then prefix sums
    buffers += 11 if isinstance(batch.teacher, TopK) else 4 if batch.labels.ndim == 2 else 0
    buffers += batch.temperature != 1
    scratch = _SCRATCH_BYTES if batch.student.is_cpu else _SCRATCH_BYTES_OFF_CPU
    rows = max(1, int(scratch / (dtype.itemsize * (buffers * num_classes + _ROW_NUMBERS))))
    return -(-num_rows // max(1, -(-num_rows // rows)))


def _block(memory: Tensor | None, batch: Batch) -> tuple[Float[Tensor, "rows 1"], Float[Tensor, "rows K"] | None]:
    """The losses of some rows, and their weighted direction, which may be in `memory`."""
    student, teacher, labels, _, beta, weight, wanted, temperature, _ = batch
    networks, (r, q), label_logits, inside = _open(memory, student, teacher, labels)
    largest = [logits.amax(-1, keepdim=True) for logits in networks]
    for logits, most in zip(networks, largest, strict=True):
        logits.sub_(most)  # exact under any common shift
        if temperature != 1:
            logits.div_(temperature)
    log_ratio = q - r
    sum_r, sum_q = [sums for logits in networks for sums in logits.exp_().sum(-1, keepdim=True).unbind(1)]
    # nan where both are zero, as at the label; any other nan shows in the sum of q. nansum is one operation, but slow
    # in compiled code.
    if is_compiling():
        expected = torch.where(q > 0, log_ratio * q, 0.0).sum(-1, keepdim=True)
    else:
        expected = log_ratio.mul_(q).nansum(-1, keepdim=True)
    del log_ratio  # frees its memory for the next buffer
    ratio = sum_r / sum_q
    conditional = torch.addcdiv(ratio.log(), expected, sum_q).clamp_min_(0.0)
    p, sum_p, largest_p = r, sum_r, largest[0][:, 0]
    if temperature != 1 or isinstance(teacher, TopK):
        p = _put(student.to(r.dtype, copy=True), labels, -torch.inf)
        largest_p = p.amax(-1, keepdim=True)
        sum_p = p.sub_(largest_p).exp_().sum(-1, keepdim=True)
    lag = (largest_p - label_logits) + sum_p.log()  # log(1 - rho) - log rho
    # The default threshold of softplus costs 2e-9; at 40 its linear branch is exact in float64.
    values = torch.add(softplus(lag, threshold=40.0), conditional, alpha=beta * temperature**2)
    if inside is not None:
        values.add_(inside)
    if not wanted:
        return values, None
    # Equal logits have equal sums, and nothing left to learn: u is exactly 0.
    reused = None if is_compiling() else q
    u = torch.addcmul(r, q, ratio, value=-1, out=reused)
    zeta = threshold(u, (labels > 0).sum(-1) if labels.ndim == 2 else 1)
    d = torch.maximum(u, zeta, out=reused)
    residual, unit, scale = lag.sigmoid().mul_(weight), sum_r.reciprocal(), beta * weight * temperature
    v = p.mul_(residual / sum_p).addcmul_(d, unit, value=scale)
    at_correct = torch.addcmul(residual.neg(), zeta, unit, value=scale)
    if labels.ndim == 2:
        moved = ((student.to(r.dtype) - label_logits).exp() - labels) * lag.neg().sigmoid().mul_(weight)
        at_correct = moved.addcmul_(residual, labels, value=-1).addcmul_(zeta, unit, value=scale)
    return values, _put(v, labels, at_correct)


def _open(
    memory: Tensor | None, student: Tensor, teacher: Tensor | TopK, labels: Tensor
) -> tuple[
    list[Float[Tensor, "rows networks K"]], list[Tensor], Float[Tensor, "rows 1"], Float[Tensor, "rows 1"] | None
]:
    """Both networks without the correct classes, each by itself, these classes' joint logit, and the loss among them.

    One operation on `memory` serves both networks; a compiler gets them apart, because it fuses no stack.
    """
    dtype = computation_dtype(student, parts_of(teacher)[0]) if memory is None else memory.dtype
    z = student.to(dtype) if labels.ndim == 2 or isinstance(teacher, TopK) else student
    compared = completed_pair(z, teacher, labels) if isinstance(teacher, TopK) else (z, teacher)
    if memory is None:
        each = [logits.to(dtype, copy=True) for logits in compared]
        networks = [logits.unsqueeze(1) for logits in each]
    else:
        networks = [memory[: student.shape[0]]]
        each = [part.copy_(logits) for part, logits in zip(networks[0].unbind(1), compared, strict=True)]
    if labels.ndim == 1:
        label_logits, inside = student.gather(-1, labels.unsqueeze(-1)).to(dtype), None
    else:
        label_logits = torch.where(labels > 0, z, -torch.inf).logsumexp(-1, keepdim=True)
        inside = torch.where(labels > 0, labels * (label_logits - z), 0.0).sum(-1, keepdim=True)
    return [_put(logits, labels, -torch.inf) for logits in networks], each, label_logits, inside


def _put(rows: Float[Tensor, "rows *two K"], labels: Shaped[Tensor, "..."], value: float | Tensor) -> Tensor:
    """The rows with `value` at the correct classes, in place if possible: a compiler fuses a mask but not an index."""
    if labels.ndim == 1 and not is_compiling():
        index = labels.view(-1, 1) if rows.ndim == 2 else labels.view(-1, 1, 1).expand(-1, rows.shape[1], 1)
        return rows.scatter_(-1, index, value)
    mask = correct_mask(labels, rows.shape[-1])
    mask = mask.unsqueeze(1) if rows.ndim == 3 else mask
    return rows.masked_fill_(mask, value) if isinstance(value, float) else torch.where(mask, value, rows)


def threshold(u: Float[Tensor, "rows K"], correct: int | Int[Tensor, "rows"] = 1) -> Float[Tensor, "rows 1"]:
    """The root zeta: at once for few classes, else by Newton's steps from a bound. `correct` classes are outside u.

    Where values may be read, the bound is the root of the least u of each lane, and steps are taken until none of them
    moves. Elsewhere the bound is the best that a few guesses give, and the number of steps is fixed: each divides the
    residual of the equation times the slope by at least 4, and half of them are enough where few classes can be active.

    Example:
        >>> threshold(torch.tensor([[-0.6, -0.1, 0.7]]))
        tensor([[-0.3000]])
    """
    may_look, num_classes, single = can_read_values(u), u.shape[-1], isinstance(correct, int)
    zero = u.new_zeros(u.shape[0])
    if may_look and num_classes <= _FEW:
        return safe_threshold(zero, u, correct).unsqueeze(-1)
    weight = correct if isinstance(correct, int) else correct.unsqueeze(-1)
    active, upper = torch.empty_like(u), zero.unsqueeze(-1)
    if may_look:
        height = num_classes // _LANES
        lanes = u[:, : height * _LANES].view(-1, height, _LANES)
        upper = safe_threshold(zero, lanes.amin(1), correct).unsqueeze(-1)
    else:
        # Literals, because a compiled graph checks in every call whatever has a name. With m correct classes the root
        # lies between 1 / (m + 1) of the least u and the least u.
        least = u.amin(-1, keepdim=True)
        for share in (0.5, 0.625, 0.75, 0.875) if single else (0.0625, 0.125, 0.25, 0.5, 0.625, 0.75, 0.875):
            upper = torch.minimum(_next_bound(u, least * share, weight, active), upper)
    for _ in itertools.count() if may_look else range(3 if single and num_classes <= 1024 else 6):
        bound = _next_bound(u, upper, weight, active)
        if may_look and not (bound < upper).any():
            break
        upper = torch.minimum(bound, upper)
    return upper


def _next_bound(u: Tensor, bound: Tensor, weight: int | Tensor, active: Tensor) -> Float[Tensor, "rows 1"]:
    torch.lt(u, bound, out=active)
    slope = active.sum(-1, keepdim=True).add_(weight)
    return active.mul_(u).sum(-1, keepdim=True).div_(slope)
