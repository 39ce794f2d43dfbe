"""Weights of several losses on one network: the shortest combination of their gradients, and its amortised stand-in."""

from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

LOSS_OFFSET = 1e-8
"""FAMO's: log-losses are of L + 1e-8, so that a loss may reach zero."""


def min_norm_weights(gradients: Float[Tensor, "n P"]) -> Float[Tensor, "n"]:
    """The weights of the shortest convex combination: argmin ||sum_i pi_i g_i||^2 over pi >= 0, sum_i pi_i = 1.

    Two gradients have the closed form pi_1 = clip(<g_2 - g_1, g_2> / ||g_1 - g_2||^2, 0, 1), and (1/2, 1/2) where they
    are equal. More are solved exactly by trying every support, of which a handful of losses has few.

    Example:
        >>> min_norm_weights(torch.tensor([[1.0, 2.0, 0.0], [2.0, -1.0, 1.0]]))
        tensor([0.5455, 0.4545])
    """
    if len(gradients) != 2:
        return _min_norm_by_support(gradients)
    difference = gradients[1] - gradients[0]
    square = difference @ difference
    # Equal gradients make the quotient 0/0; take one half instead.
    first = torch.where(square > 0, difference @ gradients[1], 0.5) / torch.where(square > 0, square, 1.0)
    first = first.clamp(0, 1)
    return torch.stack([first, 1 - first])


def _min_norm_by_support(gradients: Tensor) -> Tensor:
    # The problem is n by n and tiny; float64 on the host keeps nearly dependent gradients apart.
    gram = (gradients @ gradients.T).cpu().double()
    gram = gram / gram.diagonal().max().clamp(min=torch.finfo(gram.dtype).tiny)
    n = len(gram)
    best, best_square = torch.full((n,), 1 / n, dtype=gram.dtype), torch.inf
    for size in range(n, 0, -1):
        for support in map(list, combinations(range(n), size)):
            # Stationarity on the support's affine hull: G pi = lambda 1 and sum pi = 1.
            kkt = torch.ones(size + 1, size + 1, dtype=gram.dtype)
            kkt[:size, :size] = gram[support][:, support]
            kkt[size, size] = 0
            right = torch.zeros(size + 1, dtype=gram.dtype)
            right[size] = 1
            face = (torch.linalg.pinv(kkt, hermitian=True) @ right)[:size].clamp(min=0)
            weights = torch.zeros(n, dtype=gram.dtype)
            weights[support] = face / face.sum()
            square = (weights @ gram @ weights).item()
            if square < best_square:
                best, best_square = weights, square
    return best.to(gradients)


def effective_weights(
    weights: Float[Tensor, "n"], losses: Float[Tensor, "n"], *, normalise: bool = True
) -> Float[Tensor, "n"]:
    """The weights on the losses' own gradients that weights on log-losses amount to: pi_i / L_i, divided by their sum.

    Example:
        >>> effective_weights(torch.tensor([0.5, 0.5]), torch.tensor([1.2, 0.8]))
        tensor([0.4000, 0.6000])
    """
    scaled = weights / (losses + LOSS_OFFSET)
    return scaled / scaled.sum() if normalise else scaled


def amortised_gradient(
    log_weights: Float[Tensor, "n"], before: Float[Tensor, "n"], after: Float[Tensor, "n"]
) -> Float[Tensor, "n"]:
    """FAMO's gradient for the logits w of the weights, from the losses of one batch before and after its step.

    With pi = softmax(w) and delta_i = log L_i - log L'_i it is (diag(pi) - pi pi^T) delta: to first order in the step,
    delta is proportional to the gradient of ||sum_i pi_i grad log L_i||^2 / 2. What improved more loses weight.

    Example:
        >>> amortised_gradient(torch.zeros(2), torch.tensor([1.2, 0.8]), torch.tensor([1.1, 0.79]))
        tensor([ 0.0186, -0.0186])
    """
    pi = log_weights.softmax(0)
    delta = (before + LOSS_OFFSET).log() - (after + LOSS_OFFSET).log()
    return pi * (delta - pi @ delta)


def literal_gradient(weights: Float[Tensor, "n"], losses: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """The weight gradient as printed for DTO-KD: that of (sum_j pi_j log L_j)^2 / 2.

    Example:
        >>> literal_gradient(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 1.0]).exp())
        tensor([1., 1.])
    """
    logs = (losses + LOSS_OFFSET).log()
    return (weights @ logs) * logs


@dataclass(frozen=True)
class AdamState:
    """A vector under Adam, as plain tensors and a count that a checkpoint holds."""

    weights: Float[Tensor, "n"]
    first_moment: Float[Tensor, "n"]
    second_moment: Float[Tensor, "n"]
    step: int = 0

    @classmethod
    def start(cls, weights: Float[Tensor, "n"]) -> "AdamState":
        """The state before the first step."""
        return cls(weights, torch.zeros_like(weights), torch.zeros_like(weights))

    def to(self, other: Tensor) -> "AdamState":
        """The same state with the dtype and on the device of `other`."""
        return AdamState(self.weights.to(other), self.first_moment.to(other), self.second_moment.to(other), self.step)


def adam_step(
    state: AdamState,
    gradient: Float[Tensor, "n"],
    *,
    learning_rate: float = 0.025,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
) -> AdamState:
    """One step of Adam with the weight decay inside the gradient; the defaults are FAMO's.

    Example:
        >>> adam_step(AdamState.start(torch.zeros(2)), torch.tensor([0.5, -0.5])).weights
        tensor([-0.0250,  0.0250])
    """
    gradient = gradient + weight_decay * state.weights
    step = state.step + 1
    first = betas[0] * state.first_moment + (1 - betas[0]) * gradient
    second = betas[1] * state.second_moment + (1 - betas[1]) * gradient**2
    scale = (second / (1 - betas[1] ** step)).sqrt() + epsilon
    return AdamState(state.weights - learning_rate * (first / (1 - betas[0] ** step)) / scale, first, second, step)
