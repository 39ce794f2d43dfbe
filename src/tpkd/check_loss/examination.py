"""`tpkd check-loss`: the battery that our own losses pass, for anybody's distillation loss."""

from collections.abc import Callable
from functools import partial

import torch

from tpkd.check_loss.conduct import (
    check_dense_shapes,
    check_memory_layout,
    check_repeatable,
    check_teacher_gradient,
    check_untouched,
)
from tpkd.check_loss.masks import check_ignored_garbage, check_masked_accumulation, check_masks, check_nothing_valid
from tpkd.check_loss.meaning import (
    check_gradient,
    check_permutation,
    check_runs,
    check_shift,
    check_teacher_term,
    check_zero,
)
from tpkd.check_loss.range import LIMITS, check_extremes, check_finite, check_two_classes
from tpkd.check_loss.record import LossCheckRecord, LossFinding
from tpkd.check_loss.scale import (
    check_accumulation,
    check_number_of_classes,
    check_reduction,
    check_reduction_argument,
    check_scaling,
    check_temperature,
)
from tpkd.check_loss.subject import Claims, RefusedError, Subject, failed
from tpkd.check_loss.target import Loss

Check = Callable[[Subject], LossFinding]

FOUNDATIONS: tuple[Check, ...] = (check_runs, check_finite)
"""Without these there is nothing to examine."""
COMPARISONS: tuple[Check, ...] = (
    check_reduction,
    check_reduction_argument,
    check_number_of_classes,
    check_temperature,
    check_accumulation,
    check_scaling,
    check_zero,
    check_teacher_term,
    check_gradient,
    check_permutation,
    check_shift,
    check_masks,
    check_masked_accumulation,
    check_memory_layout,
    check_dense_shapes,
)
"""These compare one result with another, and say nothing about a loss that is not repeatable."""
SINGLE: tuple[Check, ...] = (
    check_nothing_valid,
    check_ignored_garbage,
    *(partial(check_extremes, dtype=dtype) for dtype in LIMITS),
    check_two_classes,
    check_teacher_gradient,
    check_untouched,
)


def check_loss(loss: Loss, claims: Claims | None = None) -> LossCheckRecord:
    """Examine a loss: every property as pass, fail, note or not applicable, each failure with its reproduction.

    A loss that does not run, or is not finite on ordinary logits, is not examined further.

    Example:
        >>> from tpkd.check_loss.target import find_loss
        >>> record = check_loss(find_loss("tpkd:kd_loss"))
        >>> record.failures, record.findings[3].finding
        ((), 'one number: the mean over samples')
    """
    subject = Subject(loss, claims or Claims())
    findings: list[LossFinding] = []
    for check in FOUNDATIONS:
        findings.append(check(subject))
        if findings[-1].outcome == "fail":
            return _record(loss, findings)
    checks = (check_repeatable, *(() if subject.memory else COMPARISONS), *SINGLE)
    findings += [_examine(check, subject) for check in checks]
    return _record(loss, findings)


def _examine(check: Check, subject: Subject) -> LossFinding:
    """One check; a loss that raises where it has to answer has failed it."""
    try:
        return check(subject)
    except RefusedError as error:
        name = getattr(check, "__name__", "check").removeprefix("check_").replace("_", " ")
        return failed(name, f"raises where it should answer: {error}", subject.command(subject.loss.text()))


def _record(loss: Loss, findings: list[LossFinding]) -> LossCheckRecord:
    return LossCheckRecord(loss.origin, loss.text(), str(torch.__version__), tuple(findings))
