"""Fixed augmented views: a recipe is data, and each view of a sample is a pure function of the recipe and its id."""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tpkd.data.order import CROP_COLUMN, CROP_ROW, FLIP, Integers, uniform_integers
from tpkd.errors import InputError
from tpkd.record import Record

INTERPOLATIONS = ("bicubic", "bilinear")

RawImages = np.ndarray | list[np.ndarray]


@dataclass(frozen=True)
class ViewRecipe(Record):
    """How raw images become what a network sees, in `num_views` fixed views.

    A view pads the image with black, crops a window of the original size, flips it left to right or not, resizes it
    and normalises it. Window and flip are a hash of (seed, sample id, view id): nothing random happens during training,
    so the teacher's outputs on all views can be cached. The paper's vision recipe is eight views, pad 4, flip, size
    224; its appendix "Experimental protocols" states no seed, padding colour, resize library or normalisation.

    Example:
        >>> recipe = ViewRecipe(num_views=8, seed=0, pad=4, flip=True, size=224)
        >>> images = np.zeros((2, 32, 32, 3), dtype=np.uint8)
        >>> recipe.render(images, ids=[10, 11], view_ids=[0, 7]).shape
        torch.Size([2, 3, 224, 224])
        >>> ViewRecipe.from_dict(recipe.to_dict()) == recipe
        True
    """

    num_views: int = 1
    seed: int = 0
    """The recipe's own seed: runs with different seeds share the same views."""
    pad: int = 0
    """Pixels of the raw image, on each side."""
    flip: bool = False
    size: int | None = None
    """Side length of the result; None keeps the raw size."""
    mean: tuple[float, ...] = (0.0,)
    """Per channel or one for all, on values divided by `scale`."""
    std: tuple[float, ...] = (1.0,)
    scale: float = 255.0
    """The raw value that becomes 1: 255 for bytes, 16 for digits."""
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        """Refuse invalid settings."""
        # Normalise the types, because the fingerprint distinguishes 1 from 1.0.
        for name in ("mean", "std"):
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        object.__setattr__(self, "scale", float(self.scale))
        checks = (
            ("num_views", "at least 1", self.num_views >= 1),
            ("pad", "at least 0", self.pad >= 0),
            ("size", "None or at least 1", self.size is None or self.size >= 1),
            ("mean", "finite numbers", len(self.mean) > 0 and all(map(math.isfinite, self.mean))),
            ("std", "positive numbers", len(self.std) > 0 and all(0 < value < math.inf for value in self.std)),
            ("scale", "a positive number", 0 < self.scale < math.inf),
            ("interpolation", " or ".join(INTERPOLATIONS), self.interpolation in INTERPOLATIONS),
        )
        for name, expected, fits in checks:
            if not fits:
                raise InputError(f"views: {name}: expected {expected}, found {getattr(self, name)!r}")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the recipe as JSON."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def windows(
        self, ids: Integers, view_ids: Integers
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Top and left edge of each crop in the padded image, from 0 to 2 pad, and whether it is flipped."""
        top = uniform_integers(2 * self.pad + 1, CROP_ROW, self.seed, ids, view_ids)
        left = uniform_integers(2 * self.pad + 1, CROP_COLUMN, self.seed, ids, view_ids)
        flipped = uniform_integers(2 if self.flip else 1, FLIP, self.seed, ids, view_ids) == 1
        return top, left, flipped

    def render(self, images: RawImages, ids: Integers, view_ids: Integers) -> Float[Tensor, "batch channels S S"]:
        """The given view of each image.

        Shapes: images uint8 `(batch, H, W, channels)`, or a list of them in different sizes; ids and view ids
        `(batch,)`; returns float32 `(batch, channels, S, S)`. An image that is not square is first cropped to its
        central square, because all later steps keep the shape.
        """
        view_ids = np.asarray(view_ids)
        if view_ids.size and (view_ids.min() < 0 or view_ids.max() >= self.num_views):
            raise ValueError(f"view_ids: expected 0 to {self.num_views - 1}, got {view_ids.min()} to {view_ids.max()}")
        return self._render(images, *self.windows(ids, view_ids))

    def render_plain(self, images: RawImages) -> Float[Tensor, "batch channels S S"]:
        """Each image resized and normalised, neither shifted nor flipped: the evaluation view."""
        centre = np.full(len(images), self.pad)
        return self._render(images, centre, centre, np.zeros(len(images), bool))

    def _render(self, images: RawImages, top: np.ndarray, left: np.ndarray, flipped: np.ndarray) -> Tensor:
        if isinstance(images, list):
            edges = zip(images, top, left, flipped, strict=True)
            rendered = [self._render(np.asarray(image)[None], *map(np.atleast_1d, rest)) for image, *rest in edges]
            sides = sorted({image.shape[-1] for image in rendered})
            if len(sides) > 1:
                found = f"images of {len(sides)} sizes, such as {sides[:2]}"
                raise InputError(f"views: size: expected one for {found}; set views.size, such as views: {{size: 64}}")
            return torch.cat(rendered)
        pixels = torch.from_numpy(self._crop(_central_square(images), top, left, flipped))
        result = pixels.permute(0, 3, 1, 2).to(torch.float32).div_(self.scale)
        if self.size is not None and self.size != result.shape[-1]:
            # With antialias torch uses Pillow's coefficients; the clamp is what 8-bit resizing does to overshoot.
            side = (self.size, self.size)
            resized = functional.interpolate(result.contiguous(), side, mode=self.interpolation, antialias=True)
            result = resized.clamp_(0, 1)
        channels = result.shape[1]
        return result.sub_(_per_channel("mean", self.mean, channels)).div_(_per_channel("std", self.std, channels))

    def _crop(self, images: np.ndarray, top: np.ndarray, left: np.ndarray, flipped: np.ndarray) -> np.ndarray:
        if not self.pad and not self.flip:
            return np.require(images, requirements=("C", "W"))  # decoded images are read-only, which torch warns about
        count, side = images.shape[:2]
        padded = np.pad(images, ((0, 0), (self.pad, self.pad), (self.pad, self.pad), (0, 0)))
        # Copying whole windows takes less than half the time of gathering pixels.
        windows = np.moveaxis(sliding_window_view(padded, (side, side), axis=(1, 2)), 3, 5)
        cropped: np.ndarray = windows[np.arange(count), top, left]
        cropped[flipped] = cropped[flipped, :, ::-1]
        return cropped


IDENTITY_VIEW = ViewRecipe()
"""A single view that leaves the image unchanged; the only one for texts and vectors."""

DIGITS_VIEWS = ViewRecipe(num_views=8, pad=1, scale=16.0)
"""Shifts by one pixel and no flips: a mirrored digit is a different digit, or none."""


def _central_square(images: np.ndarray) -> np.ndarray:
    if images.ndim != 4 or images.dtype != np.uint8:
        raise ValueError(f"images: expected uint8 (batch, H, W, channels), got {images.dtype} {images.shape}")
    height, width = images.shape[1:3]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return images[:, top : top + side, left : left + side]


def _per_channel(name: str, values: tuple[float, ...], channels: int) -> Tensor:
    if len(values) not in (1, channels):
        raise InputError(
            f"views: {name}: expected 1 or {channels} numbers for {channels} channels, found {len(values)}"
        )
    return torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1)
