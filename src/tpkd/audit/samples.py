"""What a gallery shows of an example: its image or text, and its name, in the order of the logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tpkd.audit.thumbnails import thumbnail
from tpkd.data.dataset import Dataset, ImageFiles
from tpkd.diagnosis.ids import iterate_ids
from tpkd.errors import InputError, shortened

LONGEST_TEXT = 4000
"""Characters of a text that a page shows; a table has all."""


def readable(text: str) -> str:
    r"""A text that every file can hold: halves of characters, which JSON may smuggle in, become U+FFFD.

    Example:
        >>> readable("a\ud800b")
        'a�b'
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@dataclass
class Samples:
    """Examples by their row in the files of logits."""

    dataset: Dataset | None
    names: tuple[str, ...] | None
    """Of the rows; None where they are called by their numbers."""
    undecodable: int = 0
    """Images that could not be shown so far."""

    @property
    def kind(self) -> str:
        """What is shown: "image", "text" or "none"."""
        return "none" if self.dataset is None or self.dataset.kind == "vector" else self.dataset.kind

    @property
    def brightest(self) -> int:
        """The value of white in the images."""
        stored = None if self.dataset is None else self.dataset.inputs
        if not isinstance(stored, np.ndarray) or stored.dtype != np.uint8 or not stored.size:
            return 255
        return 16 if int(stored.max()) <= 16 else 255  # the embedded digits

    def shown(self, rows: NDArray[np.int64], brightest: int) -> list[str | None]:
        """A text or the `data:` address of a thumbnail for each row; None where there is nothing to show."""
        if self.dataset is None or self.kind == "none":
            return [None] * len(rows)
        if self.kind == "text":
            return [shortened(readable(str(text)), LONGEST_TEXT) for text in self.dataset.take(rows)]
        return [self._image(int(row), brightest) for row in rows]

    def pixels(self, row: int) -> np.ndarray | None:
        """The image of a row; None where it cannot be decoded: one damaged file is no reason to show none."""
        assert self.dataset is not None
        try:
            return np.asarray(self.dataset.take([row])[0])
        except InputError:
            return None

    def _image(self, row: int, brightest: int) -> str | None:
        pixels = self.pixels(row)
        if pixels is None or pixels.ndim != 3 or pixels.shape[-1] not in (1, 3) or pixels.dtype != np.uint8:
            self.undecodable += 1
            return None
        return thumbnail(pixels, brightest=brightest)

    def name(self, row: int) -> str:
        """What an example is called."""
        return str(row) if self.names is None else self.names[row]

    def path(self, row: int) -> Path | None:
        """The file of an image that has one."""
        stored = None if self.dataset is None else self.dataset.inputs
        return stored.root / stored.paths[row] if isinstance(stored, ImageFiles) else None


def open_samples(dataset: Dataset | None, ids: Path | None, labels: NDArray[np.int64], *, ignored: int) -> Samples:
    """Check that the samples are those of the logits, row by row, and name them.

    Args:
        dataset: the split that the logits are of, in its order; None to show names alone.
        ids: a file of names, else those of the data set, else row numbers.
        labels: of all rows, as given to the audit.
        ignored: the label of rows that are left out.

    Raises:
        InputError: there are more or fewer samples than logits, or their labels are others.
    """
    names = None if ids is None else tuple(map(readable, iterate_ids(ids)))
    if dataset is None:
        return Samples(None, names)
    where = f"{dataset.name} ({dataset.split})"
    if len(dataset) != len(labels):
        raise InputError(f"{where}: expected {len(labels)} samples as there are logits, found {len(dataset)}")
    differ = np.flatnonzero((dataset.labels != labels) & (labels != ignored))
    if dataset.labelled and len(differ):
        row = int(differ[0])
        raise InputError(
            f"{where}: row {row}: expected label {labels[row]} as in the labels, found {dataset.labels[row]}: "
            "the logits are of other samples, or in another order"
        )
    return Samples(dataset, names or _names(dataset))


def _names(dataset: Dataset) -> tuple[str, ...] | None:
    if isinstance(dataset.inputs, ImageFiles):
        return tuple(map(readable, dataset.inputs.paths))
    if np.array_equal(dataset.ids, np.arange(len(dataset))):
        return None
    return tuple(map(str, dataset.ids.tolist()))


def all_different(names: Sequence[str] | None) -> bool:
    """Whether a name leads to one example.

    Example:
        >>> all_different(("a", "b")), all_different(("a", "a")), all_different(None)
        (True, False, True)
    """
    return names is None or len(set(names)) == len(names)
