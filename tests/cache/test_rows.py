import numpy as np
import pytest

from cache.toys import make_rows
from tpkd.cache import CacheRows
from tpkd.cache.rows import RowIndex, hash_keys


def random_keys(generator, rows):
    """Different keys over the whole range of ids, negative ones and a few sparse views included."""
    samples = generator.choice([-(2**62), -1, 0, 5, 2**31, 2**63 - 1, *generator.integers(0, 2**62, 20)], 10 * rows)
    views = generator.choice([0, 1, 7, 2**40], 10 * rows)
    keys = np.array(sorted(set(zip(samples.tolist(), views.tolist(), strict=True))))
    return keys[generator.permutation(len(keys))[:rows]].T


@pytest.mark.parametrize("seed", range(20))
def test_index_agrees_with_a_dictionary(seed):
    generator = np.random.default_rng(seed)
    samples, views = random_keys(generator, 40)
    index, table = RowIndex(samples, views), {key: row for row, key in enumerate(zip(samples, views, strict=True))}
    wanted_samples = generator.choice([*samples, 3, -(2**63), 2**63 - 1], 300)
    wanted_views = generator.choice([*views, 2, -1, 2**63 - 1], 300)
    expected = [table.get(key, -1) for key in zip(wanted_samples, wanted_views, strict=True)]
    assert index.find(wanted_samples, wanted_views).tolist() == expected
    assert index.num_samples == len(set(samples.tolist()))
    assert index.num_views == len(set(views.tolist()))


def test_an_empty_index_finds_nothing():
    none = np.zeros(0, np.int64)
    assert RowIndex(none, none).find(np.array([1]), np.array([0])).tolist() == [-1]


def test_views_stand_together_and_inputs_follow_the_keys():
    rows = make_rows(4, 3)
    assert len(rows) == 12
    assert rows.view_ids.tolist() == [0, 1, 2] * 4
    for start in range(12):
        for stop in range(start + 1, 13):
            expected = [[rows.sample_ids[row], rows.view_ids[row]] for row in range(start, stop)]
            assert rows.inputs(start, stop).tolist() == expected


def test_the_hash_of_the_keys_sees_order_and_view():
    samples, views = np.array([1, 2, 3]), np.array([0, 0, 1])
    hashes = {
        hash_keys(samples, views),
        hash_keys(samples[::-1], views[::-1]),
        hash_keys(samples, views[::-1]),
        hash_keys(samples[:2], views[:2]),
    }
    assert len(hashes) == 4


@pytest.mark.parametrize(
    ("samples", "views", "match"),
    [
        ([], [], "sample_ids: expected integers"),
        (np.zeros(0, np.int64), np.zeros(0, np.int64), "sample_ids: expected at least one row, got none"),
        ([1, 2], [0], "view_ids: expected 2 as sample_ids has, got 1"),
        ([1.0], [0], "sample_ids: expected integers of shape .rows,., got float64"),
        ([[1]], [0], "sample_ids: expected integers"),
        ([4, 3, 4], [1, 1, 1], "sample 4, view 1 more than once"),
    ],
)
def test_keys_that_cannot_be_told_apart_are_refused(samples, views, match):
    with pytest.raises(ValueError, match=match):
        CacheRows(samples, views, lambda start, stop: None)
