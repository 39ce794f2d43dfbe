"""A student beside a teacher that kept only its top classes: what can be said of the whole teacher (EXTENSIONS 2)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from tpkd.geometry.correct import drop_target, target_entry
from tpkd.geometry.divergences import kl_divergence, log_ratio
from tpkd.geometry.split import Split, split_checked
from tpkd.geometry.teaching import check_teaching, conditional_logs
from tpkd.geometry.top_k import Known, TopK, complete, what_is_known
from tpkd.theory.pair import Pair

BOUNDS = {
    "blocked": "upper",
    "confidence": "exact",
    "teacher_confidence": "exact",
    "label_loss": "exact",
    "imitation_loss": "lower",
    "conditional_loss": "lower",
    "transfer_cost": "lower",
    "min_confidence": "lower",
    "compensation": "completed",
    "retention": "completed",
    "update_cosine": "completed",
}
"""What each field of a diagnosis says about the untruncated teacher: its value, a bound of it, or the value for the
teacher that the student completes."""


@dataclass(frozen=True)
class TruncatedPair:
    """Predictions split as for a whole teacher, and what cannot be read from the split."""

    pair: Pair
    """With the completed teacher; where the label's log-probability is not known, relations are of the kept classes."""
    blocked: Bool[Tensor, "*batch"]
    """p_j <= t_j on the kept classes, and p_R <= t_R where t_R is known: where it fails, nothing is blocked."""
    imitation_loss: Float[Tensor, "*batch"]
    """KL(t || p) after merging the classes of which only the total is known."""
    label_known: Bool[Tensor, "*batch"]
    """Whether the label's log-probability is known."""


def split_truncated(
    student_logits: Float[Tensor, "*batch K"], top_k: TopK, labels: Int[Tensor, "*batch"]
) -> TruncatedPair:
    """Check and split a student and a truncated teacher.

    EXTENSIONS 2: the completed teacher has the student's proportions wherever nothing was said, so that KL, the largest
    ratio and the test of blocking are those of distributions merged over these classes. Merging never raises a KL (the
    log-sum inequality) or a largest ratio, and never fails a test that held for each class.

    Example:
        >>> log_probs = torch.tensor([[0.6, 0.2, 0.15, 0.05]], dtype=torch.float64).log()
        >>> top_k = TopK(log_probs[:, :2], torch.tensor([[0, 1]]))
        >>> split_truncated(torch.zeros(1, 4, dtype=torch.float64), top_k, torch.tensor([0])).pair.log_ratio.exp()
        tensor([[1.5000, 0.7500, 0.7500]], dtype=torch.float64)
    """
    z, _, y = check_teaching(student_logits, top_k, labels)
    z = z.detach()
    known = what_is_known(top_k, y, z.shape[-1], z.dtype)
    completed = complete(known, z)
    log_r, log_q = conditional_logs(z, top_k, y, 1.0)
    # Not split_checked: a teacher that is certain of the label has no conditional distribution to normalise.
    log_odds = target_entry(completed, y) - drop_target(completed, y).logsumexp(-1)
    teacher = Split(log_odds, logsigmoid(log_odds), logsigmoid(-log_odds), log_q)
    log_p = z.log_softmax(-1)
    return TruncatedPair(
        pair=Pair(split_checked(z, y), teacher, y, log_ratio(log_q, log_r), log_r),
        blocked=_may_be_blocked(log_p, known, _rounding_of_rest(top_k, known)),
        imitation_loss=kl_divergence(completed.log_softmax(-1), log_p),
        label_known=known.has_label,
    )


def _may_be_blocked(log_p: Tensor, known: Known, rounding: Tensor) -> Tensor:
    kept = (~known.kept | (log_p <= known.log_probs)).all(-1)
    log_p_rest = log_p.masked_fill(~known.rest, -torch.inf).logsumexp(-1)
    rest = log_p_rest <= torch.logaddexp(known.log_rest, rounding.log())
    return kept & (rest | ~known.has_label | ~known.rest.any(-1))


def _rounding_of_rest(top_k: TopK, known: Known) -> Tensor:
    """How far one minus what is given may be off; nothing where the rest was stored."""
    if top_k.rest_log_probs is not None:
        return torch.zeros_like(known.log_rest)
    log_probs = known.log_probs.masked_fill(known.log_probs == -torch.inf, 0.0)
    size = 1 + (known.log_probs.exp() * log_probs.abs()).sum(-1)
    return torch.finfo(top_k.log_probs.dtype).eps * size
