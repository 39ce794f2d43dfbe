"""Margins of the correct class, the predictions that keep all of them, and the label losses they control."""

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn.functional import logsigmoid

from tpkd.geometry.correct import (
    as_wide,
    check_single,
    correct_mask,
    drop_target,
    is_set,
    largest_correct,
    least_correct,
    one_class,
)
from tpkd.geometry.inputs import check_same_shape


def margins(logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]) -> Float[Tensor, "*batch others"]:
    """The lead of the correct class over every other class, in class order.

    Paper: section 3, M_j = z_y - z_j = log(p_y / p_j). EXTENSIONS 1, with a set of correct classes: min_y z_y - z_j.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; returns `(*batch, K-1)`. Labels may be a mask or probabilities
    `(*batch, K)`: then the margins are `(*batch, K)`, infinite on the set.

    Example:
        >>> import torch
        >>> margins(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]))
        tensor([[2., 3.]])
    """
    logits, labels = check_single("logits", logits, labels)
    leads = least_correct(logits, labels).unsqueeze(-1) - drop_target(logits, labels)
    return as_wide(leads, labels, torch.inf)


def in_safe_set(
    candidate_logits: Float[Tensor, "*batch K"],
    reference_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    tolerance: float = 0.0,
) -> Bool[Tensor, "*batch"]:
    """Whether the candidate gives back nothing: no margin is below the reference's by more than `tolerance`.

    Paper: eq:safeset. With a set of correct classes every pair of a correct and an incorrect class counts.

    Example:
        >>> import torch
        >>> before, after = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([[4.0, 2.0, 0.0]])
        >>> in_safe_set(after, before, torch.tensor([0]))
        tensor([True])
    """
    check_same_shape(reference_logits, candidate_logits, "candidate_logits", "reference_logits")
    keeps = (margins(candidate_logits, labels) >= margins(reference_logits, labels) - tolerance).all(-1)
    if not is_set(labels):
        return keeps
    # What both rule out has not changed; of one class the margins above are all there are.
    change = (candidate_logits - reference_logits).masked_fill(candidate_logits == reference_logits, 0.0)
    change, correct = check_single("candidate_logits", change, labels)
    keeps_every_pair = drop_target(change, correct).amax(-1) <= least_correct(change, correct) + tolerance
    return torch.where(correct_mask(correct, change.shape[-1]).sum(-1) == 1, keeps, keeps_every_pair)


def margin_gain(
    direction: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."], step_size: float = 1.0
) -> Float[Tensor, "*batch others"]:
    """What the step z - step_size * direction adds to each margin; it does not depend on z.

    Paper: eq:marginorder says gain(v) >= gain(h) >= 0 in every coordinate, for any step size from 0 on. EXTENSIONS 1,
    with a set of correct classes: the least gain over them, K wide and infinite on the set; gain(v) >= gain(h) holds,
    gain(h) >= 0 need not.

    Example:
        >>> import torch
        >>> margin_gain(torch.tensor([[-1.0, 0.5, 0.5]]), torch.tensor([0]), step_size=0.1)
        tensor([[0.1500, 0.1500]])
    """
    if not is_set(labels):
        return -step_size * margins(direction, labels)
    x, correct = check_single("direction", direction, labels)
    gains = step_size * (drop_target(x, correct) - largest_correct(x, correct).unsqueeze(-1))
    return as_wide(gains, correct, torch.inf)


def weighted_label_loss(
    logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."], weights: Float[Tensor, "*#batch others"]
) -> Float[Tensor, "*batch"]:
    """Label loss with its own weight for every competitor; unit weights give cross-entropy.

    Paper: section 3, L_omega = log(1 + sum_j omega_j exp(-M_j)), omega >= 0. Keeping all margins is the same as not
    increasing any of these losses. For one correct class only.

    Example:
        >>> import torch
        >>> weighted_label_loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]), torch.ones(2))
        tensor([0.4076])
    """
    labels = one_class("weighted_label_loss", labels, logits.shape)
    if weights.shape[-1] != logits.shape[-1] - 1:
        raise ValueError(f"weights: expected {logits.shape[-1] - 1} on the last axis, got shape {tuple(weights.shape)}")
    if not (weights >= 0).all():
        raise ValueError(f"weights: expected nonnegative competitor weights, got a minimum of {weights.min().item():g}")
    return -logsigmoid(-(weights.log() - margins(logits, labels)).logsumexp(-1))
