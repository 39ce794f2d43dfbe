"""Mixup and CutMix of whole batches: what is mixed with what, and how, as pure functions of seed and batch number."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from tpkd.data.order import (
    BOX_COLUMN,
    BOX_ROW,
    MIX_KIND,
    MIX_PARTNER,
    MIX_WEIGHT,
    uniform_integers,
    uniform_reals,
)
from tpkd.errors import extra

WEIGHT_STEP = 2.0**-24
"""Weights are multiples of it: exact in float32 together with what they leave of one, and the same wherever libraries
differ in the last bits of a quantile."""


@dataclass(frozen=True)
class Mixture:
    """How the images of one batch are mixed, each with the one `shift` places further on, in a circle."""

    size: int
    """Samples of the batch, over all processes."""
    shift: int
    """From 1 to size - 1, so that a partner is always another sample; 0 for a batch of one, which is left as it is."""
    weight: float
    """Lambda as drawn: how much is to be left of a sample's own image."""
    centre: tuple[float, float] | None = None
    """Of the box of CutMix, row and column as shares of the side; None for mixup."""

    def partners(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places in the batch of the partners of the samples at these places.

        Example:
            >>> Mixture(size=5, shift=2, weight=0.5).partners(np.array([0, 3, 4])).tolist()
            [2, 0, 1]
        """
        return (rows + self.shift) % self.size

    def box(self, side: int) -> tuple[slice, slice]:
        """Rows and columns of the box that CutMix fills, in an image of side x side pixels.

        It has sqrt(1 - weight) of the side; what would stand out of the image is cut off, as in the original.

        Example:
            >>> Mixture(size=2, shift=1, weight=0.75, centre=(0.5, 0.95)).box(8)
            (slice(2, 6, None), slice(5, 8, None))
        """
        assert self.centre is not None
        half = int(side * math.sqrt(1 - self.weight)) // 2
        middle = (int(share * side) for share in self.centre)
        top, left = (slice(max(place - half, 0), min(place + half, side)) for place in middle)
        return top, left

    def mix(
        self, own: Float[Tensor, "batch channels S S"], others: Float[Tensor, "batch channels S S"]
    ) -> tuple[Float[Tensor, "batch channels S S"], float]:
        """The mixed images, and the share of each that is its own: for CutMix that of the pixels outside the box.

        Example:
            >>> cut = Mixture(size=2, shift=1, weight=0.75, centre=(0.5, 0.95))
            >>> mixed, own_share = cut.mix(torch.ones(1, 1, 8, 8), torch.zeros(1, 1, 8, 8))
            >>> mixed.mean().item(), own_share
            (0.8125, 0.8125)
        """
        if self.shift == 0:
            return own, 1.0
        if self.centre is None:
            # Not lerp: a fused multiply-add rounds once where a product and a sum round twice, and vectorised code may
            # use it for all but the last few pixels. A share of a batch would then differ in the last bits.
            return own.mul(self.weight).add_(others.mul(1 - self.weight)), self.weight
        side = own.shape[-1]
        rows, columns = self.box(side)
        mixed = own.clone()
        mixed[..., rows, columns] = others[..., rows, columns]
        return mixed, 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / side**2


@dataclass(frozen=True)
class Mixing:
    """Which batches of a run are mixed, and how much.

    As in timm's default mode there is one kind, one weight and one box for a batch, here the batch of an optimiser
    step over all micro-batches and processes. Each is a hash of (run seed, batch number).

    Example:
        >>> mixture = Mixing(mixup=0.2, cutmix=1.0).draw(seed=42, number=1, size=64)
        >>> mixture.shift, round(mixture.weight, 4), mixture.box(side=32)
        (19, 0.459, (slice(0, 21, None), slice(3, 25, None)))
    """

    mixup: float = 0.0
    """The parameter of the Beta(alpha, alpha) that the weight of mixup is drawn from; 0 = no mixup."""
    cutmix: float = 0.0
    """The same of CutMix; where both are on, each batch gets one of them, with equal chances."""

    def __post_init__(self) -> None:
        """Refuse parameters that are no parameters of a Beta distribution."""
        for name in ("mixup", "cutmix"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}: expected the alpha of a Beta(alpha, alpha), or 0, got {getattr(self, name)}")
        if not self.mixup and not self.cutmix:
            raise ValueError("mixup, cutmix: expected one of them above 0, got 0 and 0")

    def draw(self, seed: int, number: int, size: int) -> Mixture:
        """How batch `number` of a run is mixed."""
        words = (seed, number)
        cut = uniform_integers(2, MIX_KIND, *words)[0] == 1 if self.mixup and self.cutmix else bool(self.cutmix)
        weight = draw_weights(self.cutmix if cut else self.mixup, seed, np.array([number])).item()
        shift = 1 + uniform_integers(size - 1, MIX_PARTNER, *words).item() if size > 1 else 0
        centre = (uniform_reals(BOX_ROW, *words).item(), uniform_reals(BOX_COLUMN, *words).item())
        return Mixture(size, shift, weight, centre if cut else None)


def draw_weights(alpha: float, seed: int, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """The weights of the batches of these numbers: quantiles of Beta(alpha, alpha), in steps of 2^-24.

    Example:
        >>> draw_weights(0.2, 42, np.arange(4)).round(4).tolist()
        [0.9999, 0.3738, 0.6527, 0.2043]
    """
    with extra("train"):
        from scipy.special import betaincinv
    quantiles = betaincinv(alpha, alpha, uniform_reals(MIX_WEIGHT, seed, numbers))
    steps: NDArray[np.float64] = np.round(quantiles / WEIGHT_STEP) * WEIGHT_STEP
    return steps


def soft_labels(
    own: Int[Tensor, "batch"], others: Int[Tensor, "batch"], own_shares: Float[Tensor, "batch"], num_classes: int
) -> Float[Tensor, "batch K"]:
    """Probabilities: of each sample's own class its own share, of its partner's class the rest; float32.

    Where both are of the same class the label is exactly one-hot.

    Example:
        >>> soft_labels(torch.tensor([0, 1]), torch.tensor([2, 1]), torch.tensor([0.75, 0.3]), num_classes=3)
        tensor([[0.7500, 0.0000, 0.2500],
                [0.0000, 1.0000, 0.0000]])
    """
    labels = torch.zeros(len(own), num_classes, dtype=torch.float64)
    labels.scatter_(1, others.unsqueeze(1), (1 - own_shares).double().unsqueeze(1))
    labels.scatter_(1, own.unsqueeze(1), torch.where(own == others, 1.0, own_shares).double().unsqueeze(1))
    return labels.float()
