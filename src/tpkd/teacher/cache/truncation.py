"""What a truncated cache keeps of a row of logits: its largest classes, the label's, and the total of all others."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tpkd.geometry.inputs import computation_dtype
from tpkd.geometry.top_k import EMPTY, TopK
from tpkd.teacher.cache.columns import TOP_K_COLUMNS

_AT_ONCE = 1 << 21
"""Logits that are truncated together: what is computed of them stays in the processor's cache."""
_SMALL = 1e8
"""A sum of so many smallest normal numbers has lost no digit to terms that underflowed."""


def truncate(logits: Float[Tensor, "rows K"], labels: Int[Tensor, " rows"], k: int) -> TopK:
    """The k largest classes of each row, largest first, with the log-probabilities of the label and of the rest.

    Computed in float32 or wider; logits must be finite. The rest are the classes that are neither kept nor the label.
    Their total is summed over these classes, never taken as one minus the others, so it stays exact however small.

    Args:
        logits: of all classes.
        labels: which class of each row is kept in any case.
        k: how many classes to keep, at most K. Of equal logits at the edge those of the lower classes are kept.

    Returns:
        `log_probs` and `indices` of shape `(rows, k)`, `label_log_probs` and `rest_log_probs` of shape `(rows,)`.

    Example:
        >>> kept = truncate(torch.tensor([[0.2, 0.5, 0.1, 0.2]]).log(), torch.tensor([2]), 2)
        >>> kept.indices, kept.log_probs.exp(), kept.label_log_probs.exp(), kept.rest_log_probs.exp()
        (tensor([[1, 0]]), tensor([[0.5000, 0.2000]]), tensor([0.1000]), tensor([0.2000]))
    """
    z, classes = logits.detach().to(computation_dtype(logits)), top_classes(logits, k)
    label, largest = labels.long().unsqueeze(-1), z.gather(-1, classes[:, :1])
    below = z - largest
    top, at_label = below.gather(-1, classes), below.gather(-1, label)
    shares = below.exp_()
    log_total = shares.sum(-1, keepdim=True).log()
    rest = shares.scatter_(-1, classes, 0.0).scatter_(-1, label, 0.0).sum(-1)
    log_rest = rest.log() - log_total.squeeze(-1)
    # Beside a class that has nearly everything, the shares of all others underflow: these rows go another way.
    far = (rest < _SMALL * torch.finfo(z.dtype).tiny).nonzero()[:, 0]
    if len(far):
        again = keep(log_probs_of(logits[far]), classes[far], labels[far]).rest_log_probs
        assert again is not None
        log_rest[far] = again
    return TopK(top - log_total, classes, (at_label - log_total).squeeze(-1), log_rest)


def truncate_positions(
    logits: Float[Tensor, "*positions K"], labels: Int[Tensor, "*positions"], k: int, top_p: float | None = None
) -> TopK:
    """`truncate` for positions along any axes, some at a time; with `top_p` fewer classes where fewer have that share.

    Example:
        >>> log_probs = torch.tensor([[[0.6, 0.3, 0.1], [0.4, 0.3, 0.3]]]).log()
        >>> kept = truncate_positions(log_probs, torch.tensor([[2, 0]]), 2, top_p=0.5)
        >>> kept.indices, kept.rest_log_probs.exp()
        (tensor([[[ 0, -1],
                 [ 0,  1]]]), tensor([[0.3000, 0.3000]]))
    """
    num_classes = logits.shape[-1]
    flat, y = logits.reshape(-1, num_classes), labels.reshape(-1)
    at_once = max(1, _AT_ONCE // num_classes)
    starts = range(0, max(1, len(flat)), at_once)
    parts = [truncate(flat[start : start + at_once], y[start : start + at_once], k) for start in starts]
    kept = TopK(*(torch.cat([getattr(part, name) for part in parts]) for name in TOP_K_COLUMNS))
    if top_p is not None:
        kept = keep_share(kept, y, top_p)
    return kept.map(lambda values: values.reshape(*labels.shape, *values.shape[1:]))


def keep_share(top_k: TopK, labels: Int[Tensor, " rows"], top_p: float) -> TopK:
    """Only as many of the largest classes as have a share of the probability; the others join the rest.

    At least one class is kept. The label keeps its own log-probability.

    Example:
        >>> kept = truncate(torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([0]), 3)
        >>> share = keep_share(kept, torch.tensor([0]), 0.4)
        >>> share.indices, share.log_probs.exp(), share.rest_log_probs.exp()
        (tensor([[ 0, -1, -1]]), tensor([[0.5000, 0.0000, 0.0000]]), tensor([0.5000]))
    """
    assert top_k.rest_log_probs is not None
    before = top_k.log_probs.exp().cumsum(-1) - top_k.log_probs.exp()
    dropped = before >= top_p
    dropped[:, 0] = False
    to_rest = dropped & (top_k.indices != labels.unsqueeze(-1))
    joined = top_k.log_probs.masked_fill(~to_rest, -torch.inf).logsumexp(-1)
    return TopK(
        log_probs=top_k.log_probs.masked_fill(dropped, -torch.inf),
        indices=top_k.indices.masked_fill(dropped, EMPTY),
        label_log_probs=top_k.label_log_probs,
        rest_log_probs=torch.logaddexp(top_k.rest_log_probs, joined),
    )


def log_probs_of(logits: Float[Tensor, "rows K"]) -> Float[Tensor, "rows K"]:
    """Log-probabilities of all classes in float32, or in float64 where the logits have it."""
    return logits.detach().to(computation_dtype(logits)).log_softmax(-1)


def top_classes(logits: Float[Tensor, "rows K"], k: int) -> Int[Tensor, "rows k"]:
    """The k largest classes, largest first; of equal ones the lower class first, on every device alike.

    `torch.topk` keeps any of several equal values, and a cache that is built again must have the same bytes.

    Example:
        >>> top_classes(torch.tensor([[1.0, 3.0, 1.0, 1.0]]), 3)
        tensor([[1, 0, 2]])
    """
    values, classes = logits.topk(min(k + 1, logits.shape[1]))
    classes = classes[:, :k]
    if k < logits.shape[1]:
        tied = (values[:, k - 1] == values[:, k]).nonzero()[:, 0]
        classes[tied] = _lowest_of_equal(logits[tied], values[tied, k - 1].unsqueeze(-1), k)
    classes = classes.sort(-1).values
    order = logits.gather(-1, classes).sort(dim=-1, descending=True, stable=True).indices
    return classes.gather(-1, order)


def _lowest_of_equal(logits: Tensor, least: Tensor, k: int) -> Tensor:
    """The k largest classes of rows in which more than k are at least `least`."""
    above, equal = logits > least, logits == least
    room = k - above.sum(-1, keepdim=True)
    kept = above | (equal & (equal.cumsum(-1, dtype=torch.int32) <= room))
    return kept.nonzero()[:, 1].view(len(logits), k)


def keep(log_probs: Float[Tensor, "rows K"], classes: Int[Tensor, "rows k"], labels: Int[Tensor, " rows"]) -> TopK:
    """These classes of each row, its label, and the total of all others: -inf where there is no other.

    Example:
        >>> log_probs = torch.tensor([[0.5, 0.3, 0.2]]).log()
        >>> keep(log_probs, torch.tensor([[0, 1]]), torch.tensor([2])).rest_log_probs
        tensor([-inf])
    """
    label = labels.long().unsqueeze(-1)
    others = log_probs.scatter(-1, classes, -torch.inf).scatter_(-1, label, -torch.inf)
    return TopK(
        log_probs=log_probs.gather(-1, classes),
        indices=classes,
        label_log_probs=log_probs.gather(-1, label).squeeze(-1),
        rest_log_probs=others.logsumexp(-1),
    )


def has_rest(top_k: TopK, labels: Int[Tensor, "*positions"], num_classes: int) -> Tensor:
    """Which positions leave out a class.

    Example:
        >>> kept = truncate(torch.zeros(2, 3), torch.tensor([0, 2]), 2)
        >>> has_rest(kept, torch.tensor([0, 2]), 3)
        tensor([ True, False])
    """
    among = (top_k.indices == labels.unsqueeze(-1)).any(-1)
    return (top_k.indices != EMPTY).sum(-1) + (~among).int() < num_classes
