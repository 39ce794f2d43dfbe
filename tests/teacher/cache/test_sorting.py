"""Keys are sorted as in memory, and only so many of them are in memory."""

import tracemalloc

import numpy as np
import pytest

from tpkd.teacher.cache.sorting import SortedKeys


def random_keys(generator, rows):
    samples = generator.integers(-5, max(1, rows // 2), rows)
    return samples, generator.integers(0, 3, rows)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_that_of_a_sort_in_memory(tmp_path, seed):
    generator = np.random.default_rng(seed)
    rows = int(generator.integers(1, 300))
    samples, views = random_keys(generator, rows)
    with SortedKeys(tmp_path, at_once=int(generator.integers(1, 100))) as keys:
        for part in np.array_split(np.arange(rows), 4):
            keys.add(samples[part], views[part])
        blocks = list(keys.merged())
        assert (keys.rows, keys.highest_view) == (rows, views.max())
    found = np.concatenate(blocks)
    expected = sorted(zip(samples.tolist(), views.tolist(), strict=True))
    assert list(map(tuple, found[:, :2].tolist())) == expected
    assert sorted(found[:, 2].tolist()) == list(range(rows))
    assert np.array_equal(samples[found[:, 2]], found[:, 0])
    assert np.array_equal(views[found[:, 2]], found[:, 1])
    assert not list(tmp_path.iterdir()), "the temporary file has no name"


def test_no_keys_are_no_blocks(tmp_path):
    with SortedKeys(tmp_path) as keys:
        assert list(keys.merged()) == []


def test_memory_does_not_grow_with_the_rows(tmp_path):
    peaks = []
    for rows in (20_000, 200_000):
        samples, views = random_keys(np.random.default_rng(0), rows)
        tracemalloc.start()
        with SortedKeys(tmp_path, at_once=4096) as keys:
            for start in range(0, rows, 1000):
                keys.add(samples[start : start + 1000], views[start : start + 1000])
            assert sum(map(len, keys.merged())) == rows
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] < 200_000 * 24
