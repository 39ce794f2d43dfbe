"""`tpkd check-loss`: the battery that our own losses pass, for anybody's distillation loss."""

import torch

from tpkd.check_loss import conduct, extremes, masks, meaning, scale
from tpkd.check_loss.record import FAIL, LossCheckRecord, LossFinding
from tpkd.check_loss.subject import Claims, Subject
from tpkd.check_loss.target import Loss

FOUNDATIONS = (meaning.runs, extremes.finite)
"""Without these there is nothing to examine."""
COMPARISONS = (
    scale.reduction,
    scale.reduction_argument,
    scale.number_of_classes,
    scale.temperature,
    scale.accumulation,
    scale.scaling,
    meaning.agreement,
    meaning.teacher_term,
    meaning.gradient,
    meaning.permutation,
    meaning.shift,
    masks.ignored_labels,
    masks.masked_accumulation,
    conduct.memory_layout,
    conduct.dense_shapes,
)
"""These compare one result with another, and say nothing about a loss that is not repeatable."""
SINGLE = (
    masks.nothing_valid,
    masks.ignored_garbage,
    *extremes.CERTAINTY,
    extremes.two_classes,
    conduct.teacher_gradient,
    conduct.untouched,
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
        if findings[-1].outcome == FAIL:
            break
    else:
        checks = (conduct.repeatable, *(() if subject.memory else COMPARISONS), *SINGLE)
        findings += [check(subject) for check in checks]
    return LossCheckRecord(loss.origin, loss.text(), str(torch.__version__), tuple(findings))
