"""Draws from a data set as pure functions of a seed and the sample ids: some of each class, and parts held out."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tpkd.data.dataset import Dataset
from tpkd.data.order import HELD_OUT, PER_CLASS, hash_words
from tpkd.errors import InputError, some


def draw_per_class(dataset: Dataset, count: int, seed: int) -> Dataset:
    """`count` samples of each class, in the order of the data set; a class with fewer gives all, and the notes say so.

    Whether a sample is drawn depends on the seed and the ids of its class alone, and a larger count draws the same
    samples and more.

    Example:
        >>> from tpkd.data import load_dataset
        >>> digits = load_dataset("digits", "train")
        >>> few = draw_per_class(digits, 20, seed=0)
        >>> len(few), np.bincount(few.labels).tolist()
        (200, [20, 20, 20, 20, 20, 20, 20, 20, 20, 20])
    """
    drawn = dataset.subset(_first_of_each_class(dataset, count, PER_CLASS, seed))
    sizes = np.bincount(dataset.labels, minlength=dataset.num_classes)
    fewer = [f"{dataset.class_names[label]!r} ({sizes[label]})" for label in np.flatnonzero(sizes < count)]
    if not fewer:
        return drawn
    note = f"{dataset.name}: fewer than {count} training samples, and so all of them, of {some(fewer)}"
    return replace(drawn, notes=(*drawn.notes, note))


def leave_per_class(dataset: Dataset, count: int, seed: int) -> Dataset:
    """All samples but those that `draw_per_class` draws, in the order of the data set.

    Raises:
        InputError: a class has no other samples.

    Example:
        >>> from tpkd.data import load_dataset
        >>> digits = load_dataset("digits", "train")
        >>> len(digits), len(leave_per_class(digits, 20, seed=0))
        (1078, 878)
    """
    drawn = _first_of_each_class(dataset, count, PER_CLASS, seed)
    left = np.setdiff1d(np.arange(len(dataset)), drawn)
    empty = np.setdiff1d(dataset.labels, dataset.labels[left])
    if len(empty):
        problem = f"expected classes of more than {count} training samples, found no more"
        raise InputError(
            f"except_per_class: {problem} of {some([repr(dataset.class_names[label]) for label in empty])}"
        )
    return dataset.subset(left)


def hold_out(dataset: Dataset, shares: Mapping[str, float], seed: int) -> dict[str, Dataset]:
    """A training part as several: what remains, under "train", and a share of each class for every part asked for.

    The samples of a class have one order, by the hash of the seed and their ids. The test part takes its first, the
    validation part its last: neither depends on the share of the other. Both have their share of the samples of a
    class, rounded, and leave at least one.

    Args:
        dataset: a training part.
        shares: "test", "validation" or both, each with a number in (0, 1).
        seed: of the draw.

    Raises:
        InputError: no class is large enough.

    Example:
        >>> from tpkd.data import load_dataset
        >>> parts = hold_out(load_dataset("digits", "train"), {"test": 0.2, "validation": 0.1}, seed=0)
        >>> {name: len(part) for name, part in parts.items()}
        {'train': 753, 'test': 216, 'validation': 109}
    """
    chosen: dict[str, list[NDArray[np.int64]]] = {name: [np.empty(0, np.int64)] for name in shares}
    for order in _classes_in_order(dataset, HELD_OUT, seed):
        tested = min(round(shares.get("test", 0.0) * len(order)), len(order) - 1)
        validated = min(round(shares.get("validation", 0.0) * len(order)), len(order) - 1 - tested)
        taken = {"test": order[:tested], "validation": order[len(order) - validated :]}
        for name in shares:
            chosen[name].append(taken[name])
    positions = {name: np.sort(np.concatenate(pieces)) for name, pieces in chosen.items()}
    parts = {"train": dataset.subset(np.setdiff1d(np.arange(len(dataset)), np.concatenate([*positions.values()])))}
    for name, places in positions.items():
        if not len(places):
            largest = int(np.bincount(dataset.labels).max())
            problem = f"expected classes of which {shares[name]:g} is a sample, found at most {largest} samples"
            raise InputError(f"{name}: {problem} of a class; hold out more, or name a {name} part")
        note = f"{dataset.name}: {len(places)} of {len(dataset)} training samples are held out as the {name} part"
        parts[name] = replace(dataset.subset(places), split=name, notes=(*dataset.notes, note))
    return parts


def _first_of_each_class(dataset: Dataset, count: int, purpose: int, seed: int) -> NDArray[np.int64]:
    """Positions of the samples with the smallest hashes of their class, sorted."""
    chosen = [order[:count] for order in _classes_in_order(dataset, purpose, seed)]
    return np.sort(np.concatenate([np.empty(0, np.int64), *chosen]))


def _classes_in_order(dataset: Dataset, purpose: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """The positions of the samples of each class, sorted by their hashes."""
    hashes = hash_words(purpose, seed, dataset.ids)
    for label in np.unique(dataset.labels):
        positions = np.flatnonzero(dataset.labels == label)
        # By the id where hashes are equal, so that the order of the rows does not matter.
        yield positions[np.lexsort((dataset.ids[positions], hashes[positions]))]
