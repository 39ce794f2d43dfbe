"""Raw inputs from a user's program: texts, images as arrays, Pillow images or paths, and vectors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tpkd.data.batches import ModelInputs, Preparation
from tpkd.data.dataset import ImageFiles
from tpkd.errors import InputError
from tpkd.student.recipe import Kind


def check_sequence(inputs: Any, kind: Kind) -> None:
    """Refuse a single input where many are expected: the letters of a text would be taken for texts.

    Example:
        >>> check_sequence("hello", "text")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: inputs: expected a list of text inputs, found a single str; put it into a list
    """
    single = isinstance(inputs, str | bytes | Path) or not hasattr(inputs, "__len__") or not hasattr(inputs, "__iter__")
    if single:
        found = type(inputs).__name__
        raise InputError(f"inputs: expected a list of {kind} inputs, found a single {found}; put it into a list")


def prepare(inputs: Sequence[Any] | np.ndarray, kind: Kind, preparation: Preparation) -> ModelInputs:
    """Raw inputs as the network takes them, in the evaluation view.

    Shapes: texts `(N)`; images uint8 `(N, H, W, channels)`, `(N, H, W)`, or a list of single ones; vectors `(N, D)`.

    Raises:
        InputError: names the first input that is not what the student takes.
    """
    check_sequence(inputs, kind)
    if len(inputs) == 0:
        raise InputError(f"inputs: expected at least one {kind} input, found none")
    if kind == "text":
        return _tokens(inputs, preparation)
    if kind == "image or vector" and (vectors := _vectors(inputs)) is not None:
        return vectors
    images = list(inputs) if _of_files(inputs) else np.asarray(inputs) if _same_shapes(inputs) else list(inputs)
    if isinstance(images, np.ndarray):
        pixels: np.ndarray | list[np.ndarray] = _pixels(images[..., None] if images.ndim == 3 else images, "inputs")
    else:
        single = [_image(image, f"inputs[{place}]") for place, image in enumerate(images)]
        pixels = np.stack(single) if len({image.shape for image in single}) == 1 else single
    return preparation.recipe.render_plain(pixels)


def _tokens(inputs: Sequence[Any] | np.ndarray, preparation: Preparation) -> ModelInputs:
    for place, text in enumerate(inputs):
        if not isinstance(text, str):
            raise InputError(f"inputs[{place}]: expected a text, found {type(text).__name__}")
    assert preparation.tokenize is not None
    return preparation.tokenize([str(text) for text in inputs])


def _vectors(inputs: Sequence[Any] | np.ndarray) -> torch.Tensor | None:
    """Rows of numbers, None where these are images."""
    if _of_files(inputs) or not _same_shapes(inputs):
        return None
    array = np.asarray(inputs)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        return None
    return torch.from_numpy(np.ascontiguousarray(array, np.float32))


def _of_files(inputs: Sequence[Any] | np.ndarray) -> bool:
    return not isinstance(inputs, np.ndarray) and (isinstance(inputs[0], str | Path) or hasattr(inputs[0], "convert"))


def _same_shapes(inputs: Sequence[Any] | np.ndarray) -> bool:
    return isinstance(inputs, np.ndarray) or len({np.shape(each) for each in inputs}) == 1


def _image(image: Any, place: str) -> np.ndarray:
    if isinstance(image, str | Path):
        path = Path(image)
        return ImageFiles(path.parent, (path.name,)).decode(0)
    if hasattr(image, "convert"):  # a Pillow image, in three channels as those of an image folder
        return np.asarray(image.convert("RGB"))
    array = np.asarray(image)
    return _pixels(array[..., None] if array.ndim == 2 else array, place)


def _pixels(array: np.ndarray, place: str) -> np.ndarray:
    expected = 4 if place == "inputs" else 3
    if array.dtype != np.uint8 or array.ndim != expected:
        shape = "(N, H, W, channels)" if expected == 4 else "(H, W, channels)"
        raise InputError(f"{place}: expected an image as uint8 {shape}, found {array.dtype} {array.shape}")
    return array
