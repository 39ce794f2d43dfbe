"""The split p = (rho, (1 - rho) r) of a prediction, in log space, and the one pair between K and K-1 coordinates."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from tpkd.geometry.inputs import check_single, class_indices


def target_entry(values: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """The coordinate of the correct class.

    Example:
        >>> target_entry(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([1]))
        tensor([2.])
    """
    return values.gather(-1, class_indices(labels).unsqueeze(-1)).squeeze(-1)


def drop_target(values: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch K-1"]:
    """The coordinates of the incorrect classes, in class order.

    Example:
        >>> drop_target(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([1]))
        tensor([[1., 3.]])
    """
    before = torch.arange(values.shape[-1] - 1, device=values.device) < class_indices(labels).unsqueeze(-1)
    # A select between two views runs at memory speed; a gather would build a long index for every entry.
    return torch.where(before, values[..., :-1], values[..., 1:])


def insert_target(
    others: Float[Tensor, "*batch others"], target: Float[Tensor, "*batch"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch others+1"]:
    """The inverse of `drop_target`: put `target` back at the label.

    Example:
        >>> insert_target(torch.tensor([[1.0, 3.0]]), torch.tensor([2.0]), torch.tensor([1]))
        tensor([[1., 2., 3.]])
    """
    classes = torch.arange(others.shape[-1] + 1, device=others.device)
    label = class_indices(labels).unsqueeze(-1)
    padded = torch.cat([others, target.unsqueeze(-1)], dim=-1)
    source = torch.where(classes == label, others.shape[-1], classes - (classes > label).long())
    return padded.gather(-1, source)


def without_shift(logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch K"]:
    """Logits of the same prediction with the largest incorrect one at zero: a step from there keeps its digits.

    Example:
        >>> without_shift(torch.tensor([[1e4, 1e4 - 1, 1e4 - 2]]), torch.tensor([0]))
        tensor([[ 1.,  0., -1.]])
    """
    return logits - drop_target(logits, labels).amax(-1, keepdim=True)


@dataclass(frozen=True)
class Split:
    """A prediction as confidence in the label and a distribution over the incorrect classes."""

    log_odds: Float[Tensor, "*batch"]
    """logit(rho) = log rho - log(1 - rho)."""
    log_confidence: Float[Tensor, "*batch"]
    """log rho."""
    log_residual: Float[Tensor, "*batch"]
    """log(1 - rho), never formed by subtraction."""
    log_conditional: Float[Tensor, "*batch others"]
    """log r."""


def split(logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]) -> Split:
    """Split a prediction into its confidence and its conditional distribution over the incorrect classes.

    Paper: section 3, p = (rho, (1 - rho) r). Exact for any lead and any common shift: log r is the log-softmax of the
    non-label logits and log(1 - rho) comes from the log-odds, so a student that is certain keeps its conditional
    distribution.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; fields `(*batch)` and `log_conditional` `(*batch, K-1)`.

    Example:
        >>> parts = split(torch.tensor([[0.9, 0.07, 0.03]]).log(), torch.tensor([0]))
        >>> parts.log_confidence.exp(), parts.log_conditional.exp()
        (tensor([0.9000]), tensor([[0.7000, 0.3000]]))
    """
    logits, labels = check_single("logits", logits, labels)
    others = drop_target(logits, labels)
    log_conditional = others.log_softmax(-1)
    # The lead over the largest of the others, and what that one holds among them: a common shift, which would cost a
    # sum its digits, drops out of both.
    log_odds = (target_entry(logits, labels) - others.amax(-1)) + log_conditional.amax(-1)
    return Split(log_odds, logsigmoid(log_odds), logsigmoid(-log_odds), log_conditional)


def join(
    log_odds: Float[Tensor, "*batch"], log_conditional: Float[Tensor, "*batch others"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch others+1"]:
    """The log-probabilities of the prediction with this log-odds and conditional distribution: the inverse of `split`.

    Example:
        >>> parts = split(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
        >>> torch.allclose(join(parts.log_odds, parts.log_conditional, torch.tensor([0])).exp().sum(-1), torch.ones(1))
        True
    """
    log_others = logsigmoid(-log_odds).unsqueeze(-1) + log_conditional
    return insert_target(log_others, logsigmoid(log_odds), labels)
