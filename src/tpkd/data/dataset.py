"""Samples with labels and stable ids: the common form of every data set."""

import hashlib
import io
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tpkd.errors import InputError, extra, reason, shortened
from tpkd.files import open_regular, read_bounded, sha256

Kind: TypeAlias = Literal["vector", "image", "text"]
RawInputs: TypeAlias = np.ndarray | list[np.ndarray] | list[str]
"""Raw inputs of some samples: an array, or a list where images differ in size or inputs are texts."""

IMAGE_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Formats Pillow may decode, whatever the suffix: for some other formats it runs external programs."""
MAX_IMAGE_BYTES = 1 << 30
"""Of an encoded image that a table names by its path."""
NO_LABEL = -100
"""The label of every sample of a part that has no labels, the value that losses ignore."""


class StoredInputs(ABC):
    """Inputs that are fetched when they are needed."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of inputs."""

    @abstractmethod
    def decode(self, position: int) -> np.ndarray:
        """One input."""

    @abstractmethod
    def subset(self, positions: NDArray[np.int64]) -> Self:
        """The inputs at the given positions."""

    @abstractmethod
    def digest(self, position: int) -> str:
        """The SHA-256 of one input as it is stored, in hexadecimal."""


@dataclass(frozen=True)
class ImageFiles(StoredInputs):
    """Images on disk, decoded on access."""

    root: Path
    paths: tuple[str, ...]
    """Relative to the root, with forward slashes."""

    def __len__(self) -> int:
        """The number of images."""
        return len(self.paths)

    def decode(self, position: int) -> np.ndarray:
        """One image as uint8 (H, W, 3); a file that is not an image is refused by name."""
        path = self.root / self.paths[position]
        with open_regular(path) as file:
            return _decode(str(path), file)

    def subset(self, positions: NDArray[np.int64]) -> Self:
        """The images at the given positions."""
        return replace(self, paths=tuple(self.paths[position] for position in positions))

    def digest(self, position: int) -> str:
        """Of the bytes of the file."""
        return sha256(self.root / self.paths[position])


@dataclass(frozen=True)
class ImageColumn(StoredInputs):
    """Encoded images in a column of a table, read from it and decoded on access."""

    where: str
    cells: Any = field(repr=False)
    """From a row to a mapping with `column`: bytes, or a mapping with `bytes` or `path`, as the library `datasets`
    gives an image that it does not decode."""
    column: str
    rows: NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        """The number of images."""
        return len(self.rows)

    def encoded(self, position: int) -> bytes:
        """The bytes of one image file; a cell that holds none is refused by its row."""
        row = int(self.rows[position])
        cell = self.cells[row][self.column]
        if isinstance(cell, dict):
            content, path = cell.get("bytes"), cell.get("path")
            if content is None and isinstance(path, str) and path:
                return read_bounded(path, MAX_IMAGE_BYTES)
            cell = content
        if not isinstance(cell, bytes):
            found = shortened(repr(cell), 60)
            raise InputError(f"{self.where}: line {row + 1}: {self.column}: expected an image, found {found}")
        return cell

    def decode(self, position: int) -> np.ndarray:
        """One image as uint8 (H, W, 3)."""
        where = f"{self.where}: line {int(self.rows[position]) + 1}: {self.column}"
        return _decode(where, io.BytesIO(self.encoded(position)))

    def subset(self, positions: NDArray[np.int64]) -> Self:
        """The images at the given positions."""
        return replace(self, rows=self.rows[positions])

    def digest(self, position: int) -> str:
        """Of the encoded image."""
        return hashlib.sha256(self.encoded(position)).hexdigest()


def _decode(where: str, file: IO[bytes]) -> np.ndarray:
    with extra("train"):
        from PIL import Image
    try:
        with Image.open(file, formats=IMAGE_FORMATS) as image:
            pixels = image.width * image.height
            if Image.MAX_IMAGE_PIXELS is not None and pixels > Image.MAX_IMAGE_PIXELS:
                found = f"{image.width} × {image.height}"
                raise InputError(
                    f"{where}: expected an image of at most {Image.MAX_IMAGE_PIXELS} pixels, found {found}"
                )
            return np.asarray(image.convert("RGB"))
    except InputError:
        raise
    except Exception as error:  # Pillow's decoders raise almost any exception on damaged files
        raise InputError(f"{where}: expected an image, found none that can be decoded: {reason(error)}") from error


Inputs: TypeAlias = np.ndarray | StoredInputs | tuple[str, ...]


@dataclass(frozen=True)
class Dataset:
    """Samples of one split, in a fixed order.

    `kind` says what the inputs are: "vector" float32 (n, D), of a data set of one's own also (n, ...); "image" uint8
    (n, H, W, channels) or stored images; "text" strings. `ids` are distinct and do not change when samples are removed
    or reordered. All samples have a label or, in a part without labels, none has: then each label is `NO_LABEL`.

    Example:
        >>> import numpy as np
        >>> data = Dataset("toy", "train", "text", ("a", "b", "c"), np.array([0, 1, 0]), np.arange(3), ("x", "y"))
        >>> len(data), data.num_classes, data.take([2, 0]), data.fingerprint[:8]
        (3, 2, ['c', 'a'], '909f0bb1')
    """

    name: str
    split: str
    kind: Kind
    inputs: Inputs = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    ids: NDArray[np.int64] = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)
    """What the user must be told about how the samples were found; no part of the fingerprint."""

    def __post_init__(self) -> None:
        """Refuse inconsistent inputs, labels, ids and class names before training starts."""
        rows = len(self.inputs)
        if rows == 0 or len(self.labels) != rows or len(self.ids) != rows:
            raise InputError(
                f"{self.name} ({self.split}): expected as many labels and ids as inputs and at least one, "
                f"found {rows} inputs, {len(self.labels)} labels and {len(self.ids)} ids"
            )
        if "" in self.class_names or len(set(self.class_names)) != self.num_classes:
            wrong = next(name for name in self.class_names if not name or self.class_names.count(name) > 1)
            raise InputError(
                f"{self.name} ({self.split}): class names: expected {self.num_classes} different names, "
                f"found {wrong!r}{' more than once' if wrong else ''}"
            )
        outside = (self.labels < 0) | (self.labels >= self.num_classes)
        if outside.any() and (self.labels != NO_LABEL).any():
            row = int(outside.argmax())
            raise InputError(
                f"{self.name} ({self.split}): expected labels from 0 to {self.num_classes - 1}, "
                f"found {self.labels[row]} in row {row}"
            )
        values, counts = np.unique(self.ids, return_counts=True)
        if len(values) != rows:
            raise InputError(f"{self.name} ({self.split}): sample id {values[counts.argmax()]} occurs more than once")

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def labelled(self) -> bool:
        """Whether the samples have labels."""
        return bool(self.labels[0] != NO_LABEL)

    def without_labels(self) -> "Dataset":
        """The same samples without their labels."""
        return replace(self, labels=np.full(len(self), NO_LABEL))

    @property
    def input_size(self) -> int:
        """How many numbers the first input has: of vectors, each one."""
        return math.prod(np.shape(self.take([0])[0]))

    def take(self, positions: Sequence[int] | NDArray[np.int64]) -> RawInputs:
        """Raw inputs at the given positions, images decoded; an array if all have the same size."""
        if isinstance(self.inputs, np.ndarray):
            taken: np.ndarray = self.inputs[np.asarray(positions)]
            return taken
        if isinstance(self.inputs, StoredInputs):
            found = [self.inputs.decode(int(position)) for position in positions]
            return np.stack(found) if len({each.shape for each in found}) == 1 else found
        return [self.inputs[int(position)] for position in positions]

    def subset(self, positions: Sequence[int] | NDArray[np.int64]) -> "Dataset":
        """The samples at the given positions, with their ids."""
        chosen = np.asarray(positions)
        inputs: Inputs
        if isinstance(self.inputs, StoredInputs):
            inputs = self.inputs.subset(chosen)
        elif isinstance(self.inputs, np.ndarray):
            inputs = self.inputs[chosen]
        else:
            inputs = tuple(self.inputs[position] for position in chosen)
        return replace(self, inputs=inputs, labels=self.labels[chosen], ids=self.ids[chosen])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over ids, labels, inputs and class names, in order; image files are read once, as bytes."""
        digest = hashlib.sha256(self.kind.encode())
        for numbers in (self.ids, self.labels):
            digest.update(np.ascontiguousarray(numbers, "<i8").tobytes())
        for part in _input_parts(self.inputs):
            _update(digest, part)
        for name in self.class_names:
            _update(digest, name.encode())
        return digest.hexdigest()


def path_id(path: str) -> int:
    """The sample id of a relative path or a name: the first 63 bits of its SHA-256.

    Example:
        >>> path_id("train/cat/1.png")
        3642720691450088411
    """
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") >> 1


def _input_parts(inputs: Inputs) -> Sequence[bytes | memoryview]:
    if isinstance(inputs, np.ndarray):
        little_endian = np.ascontiguousarray(inputs, inputs.dtype.newbyteorder("<"))
        return [f"{inputs.dtype.kind}{inputs.dtype.itemsize} {inputs.shape}".encode(), little_endian.data.cast("B")]
    if isinstance(inputs, StoredInputs):
        return [inputs.digest(position).encode() for position in range(len(inputs))]
    return [text.encode() for text in inputs]


def _update(digest: "hashlib._Hash", part: bytes | memoryview) -> None:
    # The length goes first, so that ("ab", "c") and ("a", "bc") differ.
    digest.update(len(part).to_bytes(8, "little"))
    digest.update(part)
