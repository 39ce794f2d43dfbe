import numpy as np
import pytest

from teacher.cache.toys import make_rows
from tpkd.teacher.cache.rows import CacheRows, RowIndex, hash_keys, hash_labels


def random_keys(generator, rows):
    """Different keys over the whole range of ids, negative ones included, not every sample in every view."""
    samples = generator.choice([-(2**62), -1, 0, 5, 2**31, 2**63 - 1, *generator.integers(0, 2**62, 20)], 10 * rows)
    views = generator.choice([0, 1, 7], 10 * rows)
    keys = np.array(sorted(set(zip(samples.tolist(), views.tolist(), strict=True))))
    return keys[generator.permutation(len(keys))[:rows]].T


@pytest.mark.parametrize("seed", range(20))
def test_index_agrees_with_a_dictionary(seed):
    generator = np.random.default_rng(seed)
    samples, views = random_keys(generator, 40)
    index = RowIndex(samples, views, first_row=seed)
    table = {key: row for row, key in enumerate(zip(samples, views, strict=True), seed)}
    wanted_samples = generator.choice([*samples, 3, -(2**63), 2**63 - 1], 300)
    wanted_views = generator.choice([*views, 2, -1, -(2**63), 2**63 - 1], 300)
    expected = [table.get(key, -1) for key in zip(wanted_samples, wanted_views, strict=True)]
    assert index.find(wanted_samples, wanted_views).tolist() == expected


def test_an_index_without_rows_finds_nothing():
    none, keys = np.zeros(0, np.int64), (np.array([1, 2]), np.array([0, 0]))
    assert RowIndex(none, none).find(*keys).tolist() == [-1, -1]


def test_views_stand_together_and_inputs_follow_the_keys():
    rows = make_rows(4, 3)
    assert len(rows) == 12
    assert rows.view_ids.tolist() == [0, 1, 2] * 4
    for start in range(12):
        for stop in range(start + 1, 13):
            expected = [[rows.sample_ids[row], rows.view_ids[row]] for row in range(start, stop)]
            assert rows.inputs(start, stop).tolist() == expected


def test_every_view_has_the_label_of_its_sample():
    rows = CacheRows.of_views(np.array([30, 10]), 3, lambda positions, views: None, np.array([4, 1], np.uint8))
    assert rows.labels.tolist() == [4, 4, 4, 1, 1, 1]
    assert make_rows(4, 3).labels.tolist() == [sample % 5 for sample in make_rows(4, 3).sample_ids.tolist()]


def test_the_hash_of_the_labels_sees_their_order_and_needs_them():
    hashes = {hash_labels(CacheRows([1, 2], [0, 0], None, labels), 5) for labels in ([0, 1], [1, 0], [1, 1])}
    assert len(hashes) == 3
    with pytest.raises(ValueError, match="labels: expected the label of every row, which a cache with top_k keeps"):
        hash_labels(CacheRows([1, 2], [0, 0], None), 5)
    for wrong in (5, -1, -100):
        match = f"labels: expected classes from 0 to 4, got {wrong} for sample 2, view 0"
        with pytest.raises(ValueError, match=match):
            hash_labels(CacheRows([1, 2], [0, 0], None, [0, wrong]), 5)


@pytest.mark.parametrize("labels", [[0], [0, 1, 2], [0.5, 1.0], [[0, 1]]])
def test_labels_that_are_not_one_class_a_row_are_refused(labels):
    with pytest.raises(ValueError, match="labels: expected"):
        CacheRows([1, 2], [0, 0], None, labels)
    with pytest.raises(ValueError, match="labels: expected"):
        CacheRows.of_views(np.array([1, 2]), 1, None, np.array(labels))


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
        ([4, 3], [0, -1], "view_ids: expected small numbers from 0, got -1 to 0"),
        ([4, 3], [0, 2**62], "view_ids: expected small numbers from 0, got 0 to 4611686018427387904"),
    ],
)
def test_keys_that_cannot_be_told_apart_are_refused(samples, views, match):
    with pytest.raises(ValueError, match=match):
        CacheRows(samples, views, lambda start, stop: None)
