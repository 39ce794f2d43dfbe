"""Draws from a data set as pure functions of a seed and the sample ids: some of each class, and a part held out."""

from collections.abc import Callable
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
    drawn = dataset.subset(_first_of_each_class(dataset, lambda size: count, PER_CLASS, seed))
    sizes = np.bincount(dataset.labels, minlength=dataset.num_classes)
    fewer = [f"{dataset.class_names[label]!r} ({sizes[label]})" for label in np.flatnonzero(sizes < count)]
    if not fewer:
        return drawn
    note = f"{dataset.name}: fewer than {count} training samples, and so all of them, of {some(fewer)}"
    return replace(drawn, notes=(*drawn.notes, note))


def hold_out(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """A training part as two: what remains, and the test part, a share of each class.

    The test part of a class has `share` of its samples, rounded, and leaves at least one; which ones depends on the
    seed and the ids of the class alone.

    Raises:
        InputError: no class is large enough.

    Example:
        >>> from tpkd.data import load_dataset
        >>> kept, held = hold_out(load_dataset("digits", "train"), 0.2, seed=0)
        >>> len(kept), len(held), held.split
        (862, 216, 'test')
    """
    chosen = _first_of_each_class(dataset, lambda size: min(round(share * size), size - 1), HELD_OUT, seed)
    if not len(chosen):
        largest = int(np.bincount(dataset.labels).max())
        problem = f"expected classes of which {share:g} is a sample, found at most {largest} samples of a class"
        raise InputError(f"test: {problem}; hold out more, or name a test part")
    note = f"{dataset.name}: {len(chosen)} of {len(dataset)} training samples are held out as the test part"
    kept = np.setdiff1d(np.arange(len(dataset)), chosen)
    test = replace(dataset.subset(chosen), split="test", notes=(*dataset.notes, note))
    return dataset.subset(kept), test


def _first_of_each_class(dataset: Dataset, count: Callable[[int], int], purpose: int, seed: int) -> NDArray[np.int64]:
    """Positions of the samples with the smallest hashes of their class, sorted."""
    hashes = hash_words(purpose, seed, dataset.ids)
    chosen = [np.empty(0, np.int64)]
    for label in np.unique(dataset.labels):
        positions = np.flatnonzero(dataset.labels == label)
        # By the id where hashes are equal, so that the order of the rows does not matter.
        order = np.lexsort((dataset.ids[positions], hashes[positions]))
        chosen.append(positions[order[: count(len(positions))]])
    return np.sort(np.concatenate(chosen))
