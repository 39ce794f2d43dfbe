"""A student's predictions of tokens beside a truncated teacher: what a diagnosis of a language model is made of.

The classes of which a truncated teacher gives only the total are merged before anything is computed, so that of each
token k + 2 numbers are worked on, not one for every word of the vocabulary (EXTENSIONS 2: the bounds are those of the
merged distributions).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpkd.geometry.divergences import kl_divergence, max_log_ratio
from tpkd.geometry.inputs import class_indices, computation_dtype
from tpkd.geometry.top_k import EMPTY, TopK, check_top_k_batch


@dataclass(frozen=True)
class TokenState:
    """The state of each token between student and teacher; losses and prices in nats."""

    blocked: Bool[Tensor, "*positions"]
    """Whether imitation may be blocked: an upper bound, because it is necessary only; see `is_blocked`.

    Log-probabilities are compared as they are given. A cache rounds them to its data type, and an imported rest may be
    one minus the others: where student and teacher differ by less than that rounding, a blocked token may be missed.
    """
    label_log_prob: Float[Tensor, "*positions"]
    """The student's log-probability of the right token."""
    teacher_label_log_prob: Float[Tensor, "*positions"]
    """The teacher's."""
    conditional_loss: Float[Tensor, "*positions"]
    """KL(q || r) of the merged distributions over wrong tokens: a lower bound."""
    transfer_cost: Float[Tensor, "*positions"]
    """D_inf(q || r) of the same: a lower bound of the price."""
    margin: Float[Tensor, "*positions"]
    """By how much the right token is above the strongest wrong one, in logits of the student."""
    agrees: Bool[Tensor, "*positions"]
    """Whether the student's first choice is the teacher's."""


def token_state(
    student_logits: Float[Tensor, "*positions K"], teacher: TopK, labels: Int[Tensor, "*positions"]
) -> TokenState:
    """Compare a student with a truncated teacher, token by token.

    The teacher must give the label's log-probability of every position, the largest class first, and the total of the
    rest, as a token cache does. Values are those of `diagnose(student_logits, teacher, labels)`, without what describes
    the protected step, which takes a sort of all classes.

    Example:
        >>> student = torch.tensor([[0.6, 0.2, 0.1, 0.1]]).log()
        >>> kept = TopK(torch.tensor([[0.5]]).log(), torch.tensor([[0]]), torch.tensor([0.5]).log(),
        ...             torch.tensor([0.5]).log())
        >>> state = token_state(student, kept, torch.tensor([0]))
        >>> state.blocked, state.margin.exp(), state.agrees
        (tensor([True]), tensor([3.0000]), tensor([True]))
    """
    y = check_top_k_batch(student_logits, teacher, labels).unsqueeze(-1)
    if teacher.label_log_probs is None or teacher.rest_log_probs is None:
        raise ValueError("teacher: expected label_log_probs and rest_log_probs, got a teacher without one of them")
    dtype = computation_dtype(student_logits, teacher.log_probs)
    z = student_logits.detach().to(dtype)
    indices = class_indices(teacher.indices)
    absent = (indices == EMPTY) | (indices == y)
    places = indices.masked_fill(absent, 0)
    total = z.logsumexp(-1, keepdim=True)
    kept = (z.gather(-1, places) - total).masked_fill(absent, -torch.inf)
    label = z.gather(-1, y) - total
    # The rest is summed over its own classes: one minus the others would cancel.
    others = z.scatter(-1, torch.where(absent, y, indices), -torch.inf).scatter_(-1, y, -torch.inf)
    rest = others.logsumexp(-1, keepdim=True) - total
    strongest = torch.maximum(kept.amax(-1), others.amax(-1) - total.squeeze(-1))
    log_p = torch.cat([kept, rest], dim=-1)
    log_t = torch.cat(
        [teacher.log_probs.to(dtype).masked_fill(absent, -torch.inf), teacher.rest_log_probs.to(dtype).unsqueeze(-1)],
        -1,
    )
    log_r, log_q = (values - values.logsumexp(-1, keepdim=True) for values in (log_p, log_t))
    return TokenState(
        blocked=(log_p <= log_t).all(-1),
        label_log_prob=label.squeeze(-1),
        teacher_label_log_prob=teacher.label_log_probs.to(dtype),
        conditional_loss=kl_divergence(log_q, log_r),
        transfer_cost=max_log_ratio(log_q, log_r),
        margin=label.squeeze(-1) - strongest,
        agrees=z.argmax(-1) == indices[..., 0],
    )
