"""Several teachers as one: the average of their conditional distributions, or of their probabilities.

Both return logits whose softmax at the given temperature is the average, so that a loss of one teacher learns from
several. They differ in who is heard: among averaged probabilities a teacher speaks about incorrect classes in
proportion to the probability that it leaves them, among averaged conditionals each teacher has its weight.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from tpkd.geometry.correct import correct_mask, is_set
from tpkd.geometry.inputs import check_labels, check_logits, check_positive, check_same_shape, computation_dtype


def average_probabilities(
    teacher_logits: Sequence[Float[Tensor, "*batch K"]],
    *,
    weights: Sequence[float] | None = None,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch K"]:
    """Logits z with softmax(z / T) = sum_m pi_m softmax(z_m / T): what KD learns from several teachers.

    Sum_m pi_m KL(t_m || p) = KL(t || p) + const for the average t, so imitating the average is imitating all of them.

    Args:
        teacher_logits: those of each teacher, `(*batch, K)`.
        weights: pi, one positive number per teacher, divided by their sum; equal by default.
        temperature: T; another one needs another average.

    Returns:
        `T log t`, `(*batch, K)`, in float32 for half-precision logits; of one teacher its logits as they are.

    Example:
        >>> sure, unsure = torch.tensor([[0.98, 0.01, 0.01]]).log(), torch.tensor([[0.5, 0.4, 0.1]]).log()
        >>> average_probabilities([sure, unsure]).exp()
        tensor([[0.7400, 0.2050, 0.0550]])
    """
    logits, shares = _checked(teacher_logits, weights, temperature, min_classes=2)
    if len(logits) == 1:
        return logits[0]
    return temperature * _log_mean([(z / temperature).log_softmax(-1) for z in logits], shares)


def average_conditionals(
    teacher_logits: Sequence[Float[Tensor, "*batch K"]],
    labels: Shaped[Tensor, "..."],
    *,
    weights: Sequence[float] | None = None,
    temperature: float = 1.0,
    ignore_index: int = -100,
) -> Float[Tensor, "*batch K"]:
    """Logits of a teacher whose conditional distribution is sum_m pi_m q_m: what TPKD learns from several teachers.

    EXTENSIONS 3. Sum_m pi_m KL(q_m || r) = KL(q || r) + const for the average q of the conditionals over incorrect
    classes at temperature T, and the conditional gradients average likewise: u(q) = sum_m pi_m u(q_m). The correct
    classes get the averaged probabilities, which no conditional loss looks at.

    Args:
        teacher_logits: those of each teacher, `(*batch, K)` with K >= 3.
        labels: classes `(*batch)`; or probabilities or a mask `(*batch, K)` of correct classes.
        weights: pi, one positive number per teacher, divided by their sum; equal by default.
        temperature: T; another one needs another average.
        ignore_index: a label of a row to ignore. Such a row, or one of zeros, has no correct class: it gets averaged
            probabilities.

    Returns:
        `(*batch, K)`, in float32 for half-precision logits; of one teacher its logits as they are.

    Example:
        >>> sure, unsure = torch.tensor([[0.98, 0.01, 0.01]]).log(), torch.tensor([[0.5, 0.4, 0.1]]).log()
        >>> average_conditionals([sure, unsure], torch.tensor([0]))[:, 1:].softmax(-1)
        tensor([[0.6500, 0.3500]])
    """
    logits, shares = _checked(teacher_logits, weights, temperature, min_classes=3)
    if is_set(labels):
        check_same_shape(logits[0], labels, "labels", "teacher_logits")
    else:
        labels = check_labels(labels, logits[0].shape[:-1], logits[0].shape[-1], ignore_index=ignore_index)
    if len(logits) == 1:
        return logits[0]
    correct = correct_mask(labels, logits[0].shape[-1])
    softened = [z / temperature for z in logits]
    others = [z.masked_fill(correct, -torch.inf) for z in softened]
    log_conditional = _log_mean([z.log_softmax(-1) for z in others], shares)
    # What a softmax does not see, a shift, is given to the correct classes: no conditional loss needs their digits.
    log_residual = _log_mean(
        [z.logsumexp(-1) - all_.logsumexp(-1) for z, all_ in zip(others, softened, strict=True)], shares
    )
    log_correct = _log_mean([z.log_softmax(-1) for z in softened], shares) - log_residual.unsqueeze(-1)
    return temperature * torch.where(correct, log_correct, log_conditional)


def _checked(
    teacher_logits: Sequence[Tensor], weights: Sequence[float] | None, temperature: float, *, min_classes: int
) -> tuple[list[Tensor], list[float]]:
    """The logits in the dtype to compute in, and the weights with sum one."""
    if not len(teacher_logits):
        raise ValueError("teacher_logits: expected at least one teacher, got none")
    for number, logits in enumerate(teacher_logits):
        check_logits(f"teacher_logits[{number}]", logits, min_classes=min_classes)
        check_same_shape(teacher_logits[0], logits, f"teacher_logits[{number}]", "teacher_logits[0]")
    check_positive("temperature", temperature)
    dtype = computation_dtype(*teacher_logits)
    return [logits.detach().to(dtype) for logits in teacher_logits], shares_of(weights, len(teacher_logits))


def shares_of(weights: Sequence[float] | None, count: int) -> list[float]:
    """The weights of some teachers divided by their sum; equal where there are none.

    Example:
        >>> shares_of([2.0, 1.0, 1.0], 3), shares_of(None, 2)
        ([0.5, 0.25, 0.25], [0.5, 0.5])
    """
    weights = [1.0] * count if weights is None else list(weights)
    if len(weights) != count:
        raise ValueError(f"weights: expected one for each of {count} teachers, got {len(weights)}")
    for number, weight in enumerate(weights):
        check_positive(f"weights[{number}]", weight)
    largest = max(weights)  # first, because a sum of large weights could overflow
    total = math.fsum(weight / largest for weight in weights)
    return [weight / largest / total for weight in weights]


def _log_mean(logs: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """log sum_m pi_m exp(logs_m)."""
    return torch.stack([log + math.log(share) for log, share in zip(logs, shares, strict=True)]).logsumexp(0)
