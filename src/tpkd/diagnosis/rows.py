"""The diagnosis of rows in C (`_rows.c`): which blocks it takes, how they are handed over, and what is made of them.

A twin of `tpkd.theory.diagnosis.diagnose_pair`, which says what every number means. The kernel gives what is summed,
sorted or compared along a row; the rest is one number per example and computed here.
"""

from types import ModuleType
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import logsigmoid

from tpkd.diagnosis.block import Block, Parts
from tpkd.geometry.constants import POTENTIAL_LABEL_WEIGHT
from tpkd.geometry.divergences import binary_kl_divergence
from tpkd.geometry.inputs import can_read_values
from tpkd.geometry.top_k import TopK
from tpkd.theory.diagnosis import Diagnosis

_kernel: ModuleType | None
try:
    from tpkd.diagnosis import _rows as _kernel
except ImportError:  # installed without a C compiler, or a library that it links to is missing
    _kernel = None

_THREAD_NUMEL = 2**14
"""Minimum logits per extra thread."""
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class _Found(NamedTuple):
    """The columns that the kernel writes, in its order; see `enum column` there."""

    lead: Tensor
    log_sum: Tensor
    teacher_lead: Tensor
    teacher_log_sum: Tensor
    highest: Tensor
    lowest: Tensor
    left: Tensor
    threshold: Tensor
    r_r: Tensor
    r_u: Tensor
    r_s: Tensor
    u_u: Tensor
    u_s: Tensor
    s_s: Tensor
    scale: Tensor
    answer: Tensor
    teacher_answer: Tensor


def takes(
    student: Float[Tensor, "rows K"],
    teacher: Float[Tensor, "rows K"] | TopK,
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> bool:
    """Whether the kernel is there and takes this block: a whole teacher, classes as labels, and no temperature.

    Example:
        >>> takes(torch.zeros(2, 3), torch.zeros(2, 3), torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
        False
    """
    if _kernel is None or isinstance(teacher, TopK) or temperature != 1 or labels.dtype != torch.int64:
        return False
    logits = (student, teacher)
    return all(can_read_values(each) and each.dtype in _DTYPES for each in logits) and student.shape[-1] >= 3


def diagnose_rows(
    rows: Int[Tensor, " rows"],
    student: Float[Tensor, "rows K"],
    teacher: Float[Tensor, "rows K"],
    labels: Int[Tensor, " rows"],
    *,
    beta: float,
    tables: Float[Tensor, "3 K K"] | None = None,
) -> Block:
    """`tpkd.diagnosis.block.diagnose_block` of finite logits that `takes` accepts; each row is computed alone.

    Args:
        rows: the numbers of the examples in the files.
        student: logits, of any floating-point type.
        teacher: logits of the same examples.
        labels: classes.
        beta: of the protected step that the update cosine speaks of.
        tables: where to add q_j log(q_j / r_j), q_j and r_j by label and incorrect class, row after row.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> batch = student, teacher, torch.tensor([0])
        >>> found = diagnose_rows(torch.tensor([7]), *batch, beta=0.5) if takes(*batch) else None
        >>> found and found.state.blocked
        tensor([True])
    """
    # A copy of the labels: those of a file may change after the kernel has checked them.
    own = labels.clone(memory_format=torch.contiguous_format)
    found = _call(_prepared(student), _prepared(teacher), own, tables)
    log_odds, teacher_log_odds = found.lead - found.log_sum, found.teacher_lead - found.teacher_log_sum
    log_confidence, log_residual = logsigmoid(log_odds), logsigmoid(-log_odds)
    teacher_log_residual = logsigmoid(-teacher_log_odds)
    conditional_loss, cost = found.left.clamp(min=0), found.highest.clamp(min=0)
    confidence_part = binary_kl_divergence(teacher_log_odds, log_odds)
    conditional_part = teacher_log_residual.exp() * conditional_loss
    state = Diagnosis(
        blocked=log_residual - teacher_log_residual - found.lowest <= 0,
        confidence=log_confidence.exp(),
        teacher_confidence=logsigmoid(teacher_log_odds).exp(),
        label_loss=0 - log_confidence,
        imitation_loss=confidence_part + conditional_part,
        conditional_loss=conditional_loss,
        transfer_cost=cost,
        min_confidence=(log_odds + cost).sigmoid(),
        compensation=0 - found.threshold / found.scale,
        retention=torch.where(found.u_u > 0, found.u_s / found.u_u, 1.0),
        update_cosine=_update_cosine(found, log_residual.exp(), beta),
        num_classes=student.shape[-1],
    )
    return Block(
        rows,
        student,
        teacher,
        labels,
        classes=labels,
        answers=found.answer.long(),
        teacher_answers=found.teacher_answer.long(),
        state=state,
        parts=Parts(confidence_part, conditional_part, torch.zeros_like(cost)),
    )


def _call(student: Tensor, teacher: Tensor, labels: Tensor, tables: Tensor | None) -> _Found:
    assert _kernel is not None
    num_rows, num_classes = student.shape
    threads = max(1, min(torch.get_num_threads(), num_rows, student.numel() // _THREAD_NUMEL))
    found = torch.empty(_kernel.COLUMNS, num_rows, dtype=torch.float64)
    scratch = torch.empty(_kernel.scratch_numbers(num_classes, tables is not None, threads), dtype=torch.float64)
    _kernel.diagnose_rows(
        _handed_over(student),
        _handed_over(teacher),
        labels.data_ptr(),
        found.data_ptr(),
        0 if tables is None else tables.data_ptr(),
        scratch.data_ptr(),
        num_rows,
        num_classes,
        threads,
    )
    return _Found(*found)


def _prepared(logits: Tensor) -> Tensor:
    """In single or double precision, with the classes of a row next to each other."""
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    is_plain = logits.stride(-1) == 1 and logits.data_ptr() % logits.itemsize == 0
    return logits if is_plain else logits.clone(memory_format=torch.contiguous_format)


def _handed_over(logits: Tensor) -> tuple[int, int, bool]:
    return logits.data_ptr(), logits.stride(0) * logits.itemsize, logits.dtype == torch.float64


def _update_cosine(found: _Found, residual: Tensor, beta: float) -> Tensor:
    """cos(g, v) of g = w h + u and v = h + beta d out of inner products, with h = (1 - rho) (-1, r) and d = (zeta, s).

    Each of the four is a length times a direction of length one, and lengths are divided by the larger of two: nothing
    overflows or vanishes, however small u and 1 - rho are.
    """
    u, d = found.u_u.sqrt(), (found.s_s + found.threshold.square()).sqrt()
    # Without a u there is no direction, and its length of zero takes it out of every sum.
    h_u, h_d, u_d = (
        torch.where(found.u_u > 0, product, 0.0)
        for product in (found.r_u / u, (found.r_s - found.threshold) / d, found.u_s / (u * d))
    )
    h_h = found.r_r + 1
    on_h, on_u = _shares(POTENTIAL_LABEL_WEIGHT * residual, u / found.scale)
    by_h, by_d = _shares(residual, beta * (d / found.scale))
    g_v = on_h * by_h * h_h + on_h * by_d * h_d + on_u * by_h * h_u + on_u * by_d * u_d
    g_g = on_h.square() * h_h + 2 * on_h * on_u * h_u + on_u.square()
    v_v = by_h.square() * h_h + 2 * by_h * by_d * h_d + by_d.square()
    cosine = g_v / (g_g * v_v).sqrt()
    return torch.where(cosine.isnan(), 1.0, cosine)


def _shares(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    larger = first.maximum(second)
    return first / larger, second / larger
