"""The split p = (rho, (1 - rho) r) of a prediction into its correct and its incorrect classes, in log space."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import logsigmoid

from tpkd.geometry.correct import as_wide, check_single, correct_mask, drop_target, insert_target, is_set, target_entry


def without_shift(logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]) -> Float[Tensor, "*batch K"]:
    """Logits of the same prediction with the largest incorrect one at zero: a step from there keeps its digits.

    Example:
        >>> without_shift(torch.tensor([[1e4, 1e4 - 1, 1e4 - 2]]), torch.tensor([0]))
        tensor([[ 1.,  0., -1.]])
    """
    return logits - drop_target(logits, labels).amax(-1, keepdim=True)


@dataclass(frozen=True)
class Split:
    """A prediction as confidence in the correct classes and a distribution over the incorrect ones."""

    log_odds: Float[Tensor, "*batch"]
    """logit(rho) = log rho - log(1 - rho); for a set rho is the sum over it."""
    log_confidence: Float[Tensor, "*batch"]
    """log rho."""
    log_residual: Float[Tensor, "*batch"]
    """log(1 - rho), never formed by subtraction."""
    log_conditional: Float[Tensor, "*batch others"]
    """log r; K wide where the labels are a set, with -inf on it."""

    @cached_property
    def conditional(self) -> Float[Tensor, "*batch others"]:
        """r, computed once however many ask for it."""
        return self.log_conditional.exp()


def split(logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]) -> Split:
    """Split a prediction into its confidence and its conditional distribution over the incorrect classes.

    Paper: section 3, p = (rho, (1 - rho) r). Exact for any lead and any common shift: log r is the log-softmax of the
    non-label logits and log(1 - rho) comes from the log-odds, so a student that is certain keeps its conditional
    distribution. With a set of correct classes (EXTENSIONS 1) rho is their sum.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; fields `(*batch)` and `log_conditional` `(*batch, K-1)`. Labels may
    be probabilities or a mask `(*batch, K)`: then `log_conditional` is `(*batch, K)`.

    Example:
        >>> parts = split(torch.tensor([[0.9, 0.07, 0.03]]).log(), torch.tensor([0]))
        >>> parts.log_confidence.exp(), parts.log_conditional.exp()
        (tensor([0.9000]), tensor([[0.7000, 0.3000]]))
        >>> split(torch.zeros(1, 4), torch.tensor([[True, True, False, False]])).log_conditional.exp()
        tensor([[0.0000, 0.0000, 0.5000, 0.5000]])
    """
    logits, labels = check_single("logits", logits, labels)
    parts = split_checked(logits, labels)
    return replace(parts, log_conditional=as_wide(parts.log_conditional, labels, -torch.inf))


def split_checked(logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]) -> Split:
    """`split` of what was checked already; `log_conditional` is always `(*batch, K-1)`, as `drop_target` gives it.

    Example:
        >>> split_checked(torch.zeros(1, 4), torch.tensor([[True, True, False, False]])).log_conditional
        tensor([[-0.6931, -0.6931,    -inf]])
    """
    others = drop_target(logits, labels)
    log_conditional = others.log_softmax(-1)
    # The lead over the largest of the others, and what that one holds among them: a common shift, which would cost a
    # sum its digits, drops out of both.
    log_odds = (_joint_logit(logits, labels) - others.amax(-1)) + log_conditional.amax(-1)
    return Split(log_odds, logsigmoid(log_odds), logsigmoid(-log_odds), log_conditional)


def _joint_logit(logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]) -> Float[Tensor, "*batch"]:
    """The logit of all correct classes together, their logsumexp; of one class, its own."""
    if not is_set(labels):
        return target_entry(logits, labels)
    # Exact for a single class: the log of a sum of one is zero.
    return logits.masked_fill(~correct_mask(labels, logits.shape[-1]), -torch.inf).logsumexp(-1)


def log_within(logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "*batch K"]) -> Float[Tensor, "*batch K"]:
    """Log-probabilities among the correct classes of a set, -inf at the incorrect ones.

    Example:
        >>> log_within(torch.zeros(1, 4), torch.tensor([[True, True, False, False]]))
        tensor([[-0.6931, -0.6931,    -inf,    -inf]])
    """
    return logits.masked_fill(~correct_mask(labels, logits.shape[-1]), -torch.inf).log_softmax(-1)


def join(
    log_odds: Float[Tensor, "*batch"],
    log_conditional: Float[Tensor, "*batch others"],
    labels: Shaped[Tensor, "..."],
    log_inside: Float[Tensor, "*batch K"] | None = None,
) -> Float[Tensor, "*batch K"]:
    """The log-probabilities of the prediction with this log-odds and conditional distribution: the inverse of `split`.

    With a set of correct classes (EXTENSIONS 1) `log_conditional` is `(*batch, K)`, and `log_inside` says which share
    of the set each of them has, as `log_within` does.

    Example:
        >>> parts = split(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
        >>> torch.allclose(join(parts.log_odds, parts.log_conditional, torch.tensor([0])).exp().sum(-1), torch.ones(1))
        True
    """
    log_others = logsigmoid(-log_odds).unsqueeze(-1) + log_conditional
    if is_set(labels):
        if log_inside is None:
            raise ValueError("log_inside: expected the shares of the correct classes among themselves, got None")
        log_correct = logsigmoid(log_odds).unsqueeze(-1) + log_inside
        return torch.where(correct_mask(labels, log_others.shape[-1]), log_correct, log_others)
    return insert_target(log_others, logsigmoid(log_odds), labels)
