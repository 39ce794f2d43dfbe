"""The safe cone of output directions, its polar, and the projection that makes a direction safe."""

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from tpkd.geometry.correct import (
    check_single,
    correct_mask,
    drop_target,
    is_set,
    largest_correct,
    target_entry,
)


def in_safe_cone(
    direction: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."], *, tolerance: float = 0.0
) -> Bool[Tensor, "*batch"]:
    """Whether subtracting the direction lowers no margin: x_j >= x_y for every correct and every incorrect class.

    Paper: section 5.1, the cone K_y; EXTENSIONS 1 for sets. Labels are classes, a mask or probabilities.

    Example:
        >>> in_safe_cone(torch.tensor([[-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]]), torch.tensor([0, 0]))
        tensor([ True, False])
    """
    x, labels = check_single("direction", direction, labels)
    others = drop_target(x, labels, fill=torch.inf)
    return (others >= largest_correct(x, labels).unsqueeze(-1) - tolerance).all(-1)


def in_conditional_plane(
    direction: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."], *, tolerance: float | None = None
) -> Bool[Tensor, "*batch"]:
    """Whether the direction only changes relations among incorrect classes: x_y = 0 and coordinates sum to 0.

    Paper: section 5.1, the plane L_y; it meets the safe cone in zero only. `tolerance` is relative to
    the largest entry; left out, a few roundings of the dtype.

    Example:
        >>> in_conditional_plane(torch.tensor([[0.0, 1.0, -1.0]]), torch.tensor([0]))
        tensor([True])
    """
    x, labels = check_single("direction", direction, labels)
    slack = (64 * torch.finfo(x.dtype).eps if tolerance is None else tolerance) * x.abs().amax(-1)
    return (largest_correct(x.abs(), labels) <= slack) & (x.sum(-1).abs() <= x.shape[-1] * slack)


def safe_threshold(
    target: Float[Tensor, "*batch"],
    others: Float[Tensor, "*batch others"],
    count: int | Int[Tensor, "*batch"] = 1,
) -> Float[Tensor, "*batch"]:
    """The projected coordinate zeta of the correct classes: the least mean of theirs with the k smallest others.

    Paper: appendix B.1; EXTENSIONS 1 for sets, of which `target` is the sum and `count` the number of coordinates.
    Sorting is the reference algorithm, O(K log K) per example.

    Example:
        >>> safe_threshold(torch.tensor([0.0]), torch.tensor([[-0.10, -0.02, 0.12]]))
        tensor([-0.0500])
    """
    return least_prefix_mean(target, others.sort(-1).values, count)


def least_prefix_mean(
    target: Float[Tensor, "*batch"],
    ascending: Float[Tensor, "*batch others"],
    count: int | Int[Tensor, "*batch"] = 1,
) -> Float[Tensor, "*batch"]:
    """`safe_threshold` of coordinates that are sorted already.

    Example:
        >>> least_prefix_mean(torch.tensor([0.0]), torch.tensor([[-0.10, -0.02, 0.12]]), 2)
        tensor([-0.0333])
    """
    sums = torch.cat([target.unsqueeze(-1), ascending], dim=-1).cumsum(-1)
    first = 0 if isinstance(count, Tensor) else count
    counts = torch.arange(first, first + sums.shape[-1], dtype=sums.dtype, device=sums.device)
    return (sums / (counts + count.unsqueeze(-1) if isinstance(count, Tensor) else counts)).amin(-1)


def project_safe_cone(direction: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]) -> Float[Tensor, "*batch K"]:
    """The nearest direction that lowers no margin.

    Paper: eq:closedproj, argmin_{x in K_y} ||x - direction||, for any direction (the label coordinate need not be 0).
    With a set Y of correct classes (EXTENSIONS 1): min(g_y, zeta) on Y and max(g_j, zeta) outside, where zeta is the
    root of sum_Y (g_y - zeta)_+ = sum_{j not in Y} (zeta - g_j)_+.

    Shapes: direction `(*batch, K)`, labels `(*batch)`, or a mask or probabilities `(*batch, K)`; returns `(*batch, K)`
    in float32 or wider. The order x_j >= x_y holds bitwise.

    Example:
        >>> project_safe_cone(torch.tensor([[0.0, -0.10, -0.02, 0.12]]), torch.tensor([0]))
        tensor([[-0.0500, -0.0500, -0.0200,  0.1200]])
        >>> project_safe_cone(torch.tensor([[0.0, -0.10, 0.00, 0.12]]), torch.tensor([[True, False, True, False]]))
        tensor([[-0.0333, -0.0333, -0.0333,  0.1200]])
    """
    x, labels = check_single("direction", direction, labels)
    if is_set(labels):
        return _project_set(x, correct_mask(labels, x.shape[-1]))
    zeta = safe_threshold(target_entry(x, labels), drop_target(x, labels)).unsqueeze(-1)
    return x.maximum(zeta).scatter(-1, labels.unsqueeze(-1), zeta)


def _project_set(x: Float[Tensor, "*batch K"], mask: Bool[Tensor, "*batch K"]) -> Float[Tensor, "*batch K"]:
    correct = x.masked_fill(~mask, -torch.inf)
    # The largest correct coordinate always takes part; of one class it is the only one, as for a label.
    active = mask & (x > _crossing(x, mask).unsqueeze(-1)) | (correct == correct.amax(-1, keepdim=True))
    others = drop_target(x, mask, fill=torch.inf)
    zeta = safe_threshold(x.masked_fill(~active, 0.0).sum(-1), others, active.sum(-1)).unsqueeze(-1)
    return torch.where(mask, x.minimum(zeta), x.maximum(zeta))


def _crossing(x: Float[Tensor, "*batch K"], mask: Bool[Tensor, "*batch K"]) -> Float[Tensor, "*batch"]:
    """Where what the correct classes have above equals what the others have below, from the breakpoints in order."""
    w, order = x.sort(-1)
    is_correct = mask.gather(-1, order)
    below, above = torch.where(is_correct, 0.0, w), torch.where(is_correct, w, 0.0)
    sum_below, count_below = below.cumsum(-1), (~is_correct).to(w.dtype).cumsum(-1)
    sum_above = above.sum(-1, keepdim=True) - above.cumsum(-1)
    count_above = (mask.sum(-1, keepdim=True) - is_correct.long().cumsum(-1)).to(w.dtype)
    excess = (count_below + count_above) * w - sum_below - sum_above  # increasing; negative before the root
    last = ((excess <= 0).sum(-1, keepdim=True) - 1).clamp(min=0)
    total, count = (sum_below + sum_above).gather(-1, last), (count_below + count_above).gather(-1, last)
    return torch.where(count > 0, total / count, w.gather(-1, last)).squeeze(-1)
