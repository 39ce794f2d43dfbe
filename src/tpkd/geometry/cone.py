"""The safe cone of output directions, its polar, and the projection that makes a direction safe."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpkd.geometry.inputs import check_single
from tpkd.geometry.split import drop_target, target_entry


def in_safe_cone(
    direction: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"], *, tolerance: float = 0.0
) -> Bool[Tensor, "*batch"]:
    """Whether subtracting the direction lowers no margin: x_j >= x_y for every incorrect class.

    Paper: section 5.1, the cone K_y.

    Example:
        >>> in_safe_cone(torch.tensor([[-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]]), torch.tensor([0, 0]))
        tensor([ True, False])
    """
    x, labels = check_single("direction", direction, labels)
    return (drop_target(x, labels) >= target_entry(x, labels).unsqueeze(-1) - tolerance).all(-1)


def in_conditional_plane(
    direction: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"], *, tolerance: float | None = None
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
    return (target_entry(x, labels).abs() <= slack) & (x.sum(-1).abs() <= x.shape[-1] * slack)


def safe_threshold(target: Float[Tensor, "*batch"], others: Float[Tensor, "*batch others"]) -> Float[Tensor, "*batch"]:
    """The projected target coordinate zeta: the least mean of the target with its k smallest other coordinates.

    Paper: appendix B.1. Sorting is the reference algorithm, O(K log K) per example.

    Example:
        >>> safe_threshold(torch.tensor([0.0]), torch.tensor([[-0.10, -0.02, 0.12]]))
        tensor([-0.0500])
    """
    return least_prefix_mean(target, others.sort(-1).values)


def least_prefix_mean(
    target: Float[Tensor, "*batch"], ascending: Float[Tensor, "*batch others"]
) -> Float[Tensor, "*batch"]:
    """`safe_threshold` of coordinates that are sorted already.

    Example:
        >>> least_prefix_mean(torch.tensor([0.0]), torch.tensor([[-0.10, -0.02, 0.12]]))
        tensor([-0.0500])
    """
    sums = torch.cat([target.unsqueeze(-1), ascending], dim=-1).cumsum(-1)
    counts = torch.arange(1, sums.shape[-1] + 1, dtype=sums.dtype, device=sums.device)
    return (sums / counts).amin(-1)


def project_safe_cone(direction: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch K"]:
    """The nearest direction that lowers no margin.

    Paper: eq:closedproj, argmin_{x in K_y} ||x - direction||, for any direction (the label coordinate need not be 0).

    Shapes: direction `(*batch, K)`, labels `(*batch)`; returns `(*batch, K)` in float32 or wider. The order
    x_j >= x_y holds bitwise.

    Example:
        >>> project_safe_cone(torch.tensor([[0.0, -0.10, -0.02, 0.12]]), torch.tensor([0]))
        tensor([[-0.0500, -0.0500, -0.0200,  0.1200]])
    """
    x, labels = check_single("direction", direction, labels)
    zeta = safe_threshold(target_entry(x, labels), drop_target(x, labels)).unsqueeze(-1)
    return x.maximum(zeta).scatter(-1, labels.unsqueeze(-1), zeta)
