"""Which training sample each row of a file belongs to: by the order of the data, or by ids."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tpkd.arrays import array_names
from tpkd.arrays.columns import ID_NAMES
from tpkd.data.dataset import Dataset, ImageFiles, path_id
from tpkd.diagnosis.ids import iterate_ids
from tpkd.errors import InputError, shortened

Positions = NDArray[np.int64]

_NUMBER = re.compile(r"\d{1,19}", re.ASCII)
_LARGEST = 2**63 - 1


def find_samples(source: Path, rows: int, ids: Path | None, dataset: Dataset) -> Positions:
    """The position in the data of each row of a file, -1 for a row of no training sample.

    Args:
        source: the file of logits; ids that it holds itself, in an array or column such as `ids`, are used.
        rows: how many it has.
        ids: a file of ids, one for each row; without any, the rows are the training samples in their order.
        dataset: the training samples.

    Raises:
        InputError: the rows are too many or too few, or an id is missing or there twice.
    """
    key = next((name for name in ID_NAMES if name in array_names(source)), None)
    if ids is None and key is None:
        if rows != len(dataset):
            raise InputError(
                f"{source}: expected {len(dataset)} rows, one for each training sample in the order of the data, found "
                f"{rows}; name the samples of other rows with --ids"
            )
        return np.arange(rows)
    where = source if ids is None else ids
    names = list(iterate_ids(where, key=key if ids is None and key else "ids"))
    if len(names) != rows:
        raise InputError(f"{where}: expected {rows} ids as {source} has rows, found {len(names)}")
    return match_ids(str(where), names, dataset)


def match_ids(where: str, names: Sequence[str], dataset: Dataset) -> Positions:
    """The position in the data of each id, -1 where the data do not have it.

    An id is the number of a sample in the data, its name in the column `data.columns.id`, or its path in an image
    folder; all ids of a file are of one kind.

    Raises:
        InputError: names the first training sample without an id, or the first id that is there twice.

    Example:
        >>> dataset = Dataset("toy", "train", "text", ("x", "y"), np.array([0, 1]), np.array([30, 7]), ("a", "b"))
        >>> match_ids("ids.txt", ["7", "8", "30"], dataset)
        array([ 1, -1,  0])
    """
    _check_twice(where, names)
    order, everything = dataset.ids.argsort(), np.arange(len(dataset))
    found, missing = np.full(len(names), -1), everything
    for ids in _readings(names, dataset.split):
        positions = _positions(ids, dataset.ids, order)
        left = np.setdiff1d(everything, positions)
        if len(left) < len(missing):
            found, missing = positions, left
        if not len(missing):
            return found
    raise InputError(
        f"{where}: expected an id of every training sample, found none of {len(missing)}, such as "
        f"{_name_sample(dataset, int(missing[0]))}"
    )


def _readings(names: Sequence[str], split: str) -> Iterator[Positions]:
    """What the ids may be: numbers of samples, names in a column, paths in a folder."""
    numbers = (int(name) if _NUMBER.fullmatch(name) else -1 for name in names)
    yield np.array([number if number <= _LARGEST else -1 for number in numbers], np.int64)
    yield np.array([path_id(f"{split}/{name}") for name in names], np.int64)
    yield np.array([path_id(name) for name in names], np.int64)


def _positions(ids: Positions, known: Positions, order: Positions) -> Positions:
    places = order[np.searchsorted(known, ids, sorter=order).clip(max=len(known) - 1)]
    return np.where(known[places] == ids, places, -1)


def _check_twice(where: str, names: Sequence[str]) -> None:
    seen: dict[str, int] = {}
    for row, name in enumerate(names):
        if (earlier := seen.setdefault(name, row)) != row:
            raise InputError(
                f"{where}: row {row}: expected different ids, found {shortened(name, 60)!r} as in row {earlier}"
            )


def _name_sample(dataset: Dataset, position: int) -> str:
    called = dataset.inputs.paths[position] if isinstance(dataset.inputs, ImageFiles) else f"id {dataset.ids[position]}"
    return f"{called} (sample {position} of {dataset.name})"
