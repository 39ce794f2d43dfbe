"""A data set of one's own: any Python object with samples `(x, y, id)` by position."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tpkd.data.dataset import NO_LABEL, Dataset, Kind, StoredInputs, path_id
from tpkd.data.labels import text_problem
from tpkd.data.loading import OWN
from tpkd.errors import InputError, did_you_mean, shortened

REPEATED = 8
"""First samples that are read twice, because a run can resume only if a sample stays what it is."""

_CHANNELS = (1, 3)


class _Form(NamedTuple):
    """What all samples have in common: the shape of vectors, the channels of images."""

    kind: Kind
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class OwnSamples(StoredInputs):
    """Images or arrays of a user's data set, asked for when they are needed."""

    source: Any = field(repr=False)
    where: str
    form: _Form
    positions: NDArray[np.int64] = field(repr=False)
    digests: tuple[str, ...] = field(repr=False)
    """Of the samples at the positions, when they were first read."""

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.positions)

    def decode(self, position: int) -> np.ndarray:
        """One sample as an array, checked to be of the form that it had."""
        place = int(self.positions[position])
        x, _, sample_id = _sample(self.where, self.source, place)
        form, value = _read(f"{self.where}: sample {shortened(repr(sample_id), 60)}", x)
        _check_form(self.where, sample_id, form, self.form)
        assert isinstance(value, np.ndarray)
        return value

    def subset(self, positions: NDArray[np.int64]) -> Self:
        """The samples at the given positions."""
        digests = tuple(self.digests[position] for position in positions)
        return replace(self, positions=self.positions[positions], digests=digests)

    def digest(self, position: int) -> str:
        """Of type, shape and contents."""
        return self.digests[position]


def own_dataset(source: Any, split: str, class_names: Sequence[str]) -> Dataset:
    """A map-style data set, such as a `torch.utils.data.Dataset`, as samples that a run can use.

    `source[position]` is `(x, y, id)`. x is a text; an image, as uint8 array `(H, W)` or `(H, W, channels)`, uint8
    tensor `(channels, H, W)` or Pillow image; or an array or tensor of floating-point numbers of any shape, the same
    for all samples, which the network gets as it is. y is the number or name of a class, or None in a part without
    labels. The id is a whole number or a text, different for each sample of the part.

    Every sample is read once, to check it and for the fingerprint that binds checkpoints to the data. Images and
    arrays are not kept: they are asked for again when a batch needs them. A sample must not change: random
    augmentation belongs to `views` of the configuration, which a resumed run repeats.

    Raises:
        InputError: names the sample by its id.

    Example:
        >>> import torch
        >>> points = [(torch.tensor([0.5, 1.0]), "a", 7), (torch.tensor([0.0, 2.0]), "b", 9)]
        >>> data = own_dataset(points, "train", ["a", "b"])
        >>> data.kind, data.labels.tolist(), data.ids.tolist(), data.take([1]).tolist()
        ('vector', [0, 1], [7, 9], [[0.0, 2.0]])
    """
    where = f"{OWN} ({split})"
    if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
        raise InputError(f"{where}: expected a data set with a length and samples by position, found {_name(source)}")
    texts: list[str] = []
    labels, ids, digests = [], [], []
    first: _Form | None = None
    for position in range(len(source)):
        x, y, sample_id = _sample(where, source, position)
        sample = f"{where}: sample {shortened(repr(sample_id), 60)}"
        ids.append(_id(where, split, position, sample_id))
        labels.append(_label(sample, y, class_names))
        form, value = _read(sample, x)
        first = first or form
        _check_form(where, sample_id, form, first)
        if isinstance(value, str):
            texts.append(value)
        else:
            digests.append(_digest(value))
        if position < REPEATED and _digest(_read(sample, _sample(where, source, position)[0])[1]) != _digest(value):
            way_out = "random augmentation belongs to views of the configuration, which a resumed run repeats"
            raise InputError(f"{sample}: expected the same x each time it is read, found another; {way_out}")
    if first is None:
        raise InputError(f"{where}: expected at least one sample, found none")
    _check_ids(where, source, ids)
    stored = OwnSamples(source, where, first, np.arange(len(digests)), tuple(digests))
    inputs = tuple(texts) if first.kind == "text" else stored
    return Dataset(OWN, split, first.kind, inputs, np.array(labels), np.array(ids), tuple(class_names))


def _sample(where: str, source: Any, position: int) -> tuple[Any, Any, Any]:
    sample = source[position]
    if not isinstance(sample, tuple | list) or len(sample) != 3:
        found = f"{len(sample)} values" if isinstance(sample, tuple | list) else _name(sample)
        raise InputError(f"{where}: position {position}: expected (x, y, id), found {found}")
    x, y, sample_id = sample
    return x, y, sample_id


def _id(where: str, split: str, position: int, sample_id: Any) -> int:
    if isinstance(sample_id, str) and sample_id:
        return path_id(f"{split}/{sample_id}")
    number = _whole(sample_id)
    if number is not None and -(2**63) <= number < 2**63:
        return number
    found = shortened(repr(sample_id), 60)
    raise InputError(f"{where}: position {position}: id: expected a whole number or a text, found {found}")


def _check_ids(where: str, source: Any, ids: list[int]) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: dict[int, int] = {}
    for position, sample_id in enumerate(ids):
        if seen.setdefault(sample_id, position) != position:
            found = shortened(repr(source[position][2]), 60)
            both = f"positions {seen[sample_id]} and {position}"
            raise InputError(f"{where}: sample {found}: expected different ids, found it at {both}")


def _label(sample: str, y: Any, class_names: Sequence[str]) -> int:
    if y is None:
        return NO_LABEL
    if isinstance(y, str):
        if y not in class_names:
            raise InputError(f"{sample}: y: expected one of the classes, found {y!r}{did_you_mean(y, class_names)}")
        return list(class_names).index(y)
    number = _whole(y)
    if number is not None and 0 <= number < len(class_names):
        return number
    expected = f"a class from 0 to {len(class_names) - 1}, its name, or None in a part without labels"
    raise InputError(f"{sample}: y: expected {expected}, found {shortened(repr(y), 60)}")


def _whole(value: Any) -> int | None:
    """A whole number of Python, NumPy or torch as an int; None for anything else."""
    if isinstance(value, Tensor):
        value = value.item() if value.ndim == 0 else None
    return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else None


def _read(sample: str, x: Any) -> tuple[_Form, np.ndarray | str]:
    """The form of an input, and the input itself: a text, an image `(H, W, channels)` or an array of float32."""
    if isinstance(x, str):
        if problem := text_problem(x):
            raise InputError(f"{sample}: x: {problem}")
        return _Form("text"), x
    if isinstance(x, Tensor):
        array = (x.detach().float() if x.is_floating_point() else x.detach()).cpu().numpy()
        array = array.transpose(1, 2, 0) if array.dtype == np.uint8 and array.ndim == 3 else array
    elif isinstance(x, np.ndarray):
        array = x
    elif hasattr(x, "convert") and hasattr(x, "getbands"):  # a Pillow image
        array = np.asarray(x.convert("L" if x.mode in ("1", "L") else "RGB"))
    else:
        raise InputError(f"{sample}: x: expected a text, an array or an image, found {_name(x)}")
    if array.dtype == np.uint8:
        return _image(sample, array)
    if array.dtype.kind != "f" or not array.size:
        found = f"{array.dtype} of shape {array.shape}"
        raise InputError(f"{sample}: x: expected floating-point numbers, or uint8 for images, found {found}")
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused below
        values = array.astype(np.float32)
    if not np.isfinite(values).all():
        found = values[~np.isfinite(values)][0]
        raise InputError(f"{sample}: x: expected finite numbers that float32 holds, found {found}")
    return _Form("vector", values.shape), values


def _image(sample: str, array: np.ndarray) -> tuple[_Form, np.ndarray]:
    image = array[..., None] if array.ndim == 2 else array
    if image.ndim != 3 or image.shape[2] not in _CHANNELS or not image.size:
        expected = "an image as uint8 array (H, W), (H, W, 1) or (H, W, 3), or tensor (1, H, W) or (3, H, W)"
        raise InputError(f"{sample}: x: expected {expected}, found shape {array.shape} with channels last")
    return _Form("image", image.shape[2:]), image


def _check_form(where: str, sample_id: Any, found: _Form, first: _Form) -> None:
    if found == first:
        return
    words = [f"{form.kind} {form.shape}" if form.shape else form.kind for form in (first, found)]
    sample = f"{where}: sample {shortened(repr(sample_id), 60)}"
    raise InputError(f"{sample}: x: expected {words[0]} as the first sample, found {words[1]}")


def _digest(value: np.ndarray | str) -> str:
    if isinstance(value, str):
        return hashlib.sha256(value.encode()).hexdigest()
    little_endian = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
    digest = hashlib.sha256(f"{value.dtype.kind}{value.dtype.itemsize} {value.shape}".encode())
    digest.update(little_endian.data.cast("B"))
    return digest.hexdigest()


def _name(value: object) -> str:
    return type(value).__name__
