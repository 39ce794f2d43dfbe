"""Margins of the correct class, the predictions that keep all of them, and the label losses they control."""

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from tpkd.geometry.inputs import check_same_shape, check_single
from tpkd.geometry.split import drop_target, target_entry


def margins(logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch K-1"]:
    """The lead of the correct class over every other class, in class order.

    Paper: section 3, M_j = z_y - z_j = log(p_y / p_j).

    Example:
        >>> import torch
        >>> margins(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]))
        tensor([[2., 3.]])
    """
    logits, labels = check_single("logits", logits, labels)
    return target_entry(logits, labels).unsqueeze(-1) - drop_target(logits, labels)


def in_safe_set(
    candidate_logits: Float[Tensor, "*batch K"],
    reference_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"],
    *,
    tolerance: float = 0.0,
) -> Bool[Tensor, "*batch"]:
    """Whether the candidate gives back nothing: no margin is below the reference's by more than `tolerance`.

    Paper: eq:safeset.

    Example:
        >>> import torch
        >>> before, after = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([[4.0, 2.0, 0.0]])
        >>> in_safe_set(after, before, torch.tensor([0]))
        tensor([True])
    """
    check_same_shape(reference_logits, candidate_logits, "candidate_logits", "reference_logits")
    return (margins(candidate_logits, labels) >= margins(reference_logits, labels) - tolerance).all(-1)


def margin_gain(
    direction: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"], step_size: float = 1.0
) -> Float[Tensor, "*batch K-1"]:
    """What the step z - step_size * direction adds to each margin; it does not depend on z.

    Paper: eq:marginorder says gain(v) >= gain(h) >= 0 in every coordinate, for any step size from 0 on.

    Example:
        >>> import torch
        >>> margin_gain(torch.tensor([[-1.0, 0.5, 0.5]]), torch.tensor([0]), step_size=0.1)
        tensor([[0.1500, 0.1500]])
    """
    return -step_size * margins(direction, labels)


def weighted_label_loss(
    logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"], weights: Float[Tensor, "*#batch others"]
) -> Float[Tensor, "*batch"]:
    """Label loss with its own weight for every competitor; unit weights give cross-entropy.

    Paper: section 3, L_omega = log(1 + sum_j omega_j exp(-M_j)), omega >= 0. Keeping all margins is the same as not
    increasing any of these losses.

    Example:
        >>> import torch
        >>> weighted_label_loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]), torch.ones(2))
        tensor([0.4076])
    """
    if weights.shape[-1] != logits.shape[-1] - 1:
        raise ValueError(f"weights: expected {logits.shape[-1] - 1} on the last axis, got shape {tuple(weights.shape)}")
    if not (weights >= 0).all():
        raise ValueError(f"weights: expected nonnegative competitor weights, got a minimum of {weights.min().item():g}")
    return -logsigmoid(-(weights.log() - margins(logits, labels)).logsumexp(-1))
