"""The file of an index agrees with a table in memory, and a look-up reads few of its entries."""

import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import load_file

from teacher.cache.journals import vouch
from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.errors import InputError
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.index import FENCE, SortedIndex, index_layout, write_index
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.rows import RowIndex
from tpkd.teacher.cache.tensors import write_tensors
from tpkd.teacher.cache.verify import verify_cache


def random_keys(generator, samples, views):
    """Not every sample in every view, in any order, over the whole range of ids."""
    ids = generator.choice(np.array([-(2**63), 2**63 - 1, *range(-50, 10 * samples)]), samples, replace=False)
    keys = np.stack([np.repeat(ids, views), np.tile(np.arange(views), samples)])
    chosen = np.flatnonzero((generator.random(keys.shape[1]) < 0.8) | (keys[1] == 0))
    return keys[:, generator.permutation(chosen)]


def written(directory, samples, views, at_once=1000):
    count = len(np.unique(samples))
    entry = write_index(
        directory, zip(np.array_split(samples, 3), np.array_split(views, 3), strict=True), count, at_once=at_once
    )
    return SortedIndex(directory, entry, count, len(samples))


@pytest.mark.parametrize("seed", range(20))
def test_the_file_agrees_with_a_table_in_memory(tmp_path, seed):
    generator = np.random.default_rng(seed)
    samples, views = random_keys(generator, int(generator.integers(1, 400)), int(generator.integers(1, 4)))
    index = written(tmp_path, samples, views, at_once=int(generator.integers(1, 300)))
    assert index.find(samples, views).tolist() == list(range(len(samples)))
    wanted = np.concatenate([samples, samples + 1, [0, -(2**63), 2**63 - 1]])
    wanted_views = np.concatenate([views, views, [-1, 2**62, 0]])
    assert index.find(wanted, wanted_views).tolist() == RowIndex(samples, views).find(wanted, wanted_views).tolist()


@pytest.mark.parametrize("count", [1, FENCE - 1, FENCE, FENCE + 1, 5000])
def test_every_number_of_samples(tmp_path, count):
    samples = np.random.default_rng(0).permutation(count) * 3
    index = written(tmp_path, samples, np.zeros(count, int))
    assert index.find(samples, np.zeros(count, int)).tolist() == list(range(count))
    assert (index.find(samples + 1, np.zeros(count, int)) == -1).all()


def test_keys_that_are_not_unique_or_not_counted_are_refused(tmp_path):
    ids, none = np.arange(100), np.zeros(100, int)
    with pytest.raises(ValueError, match="sample 7, view 0 more than once"):
        write_index(tmp_path, [(ids, none), (ids[7:8], none[:1])], 100)
    for count in (99, 101):
        with pytest.raises(ValueError, match=f"sample_ids: expected {count} different ones, got 100 or more"):
            write_index(tmp_path, [(ids, none)], count)
    with pytest.raises(ValueError, match="view_ids: expected small numbers from 0"):
        write_index(tmp_path, [(ids, none - 1)], 100)
    assert not list(tmp_path.iterdir())


class Counted:
    """An array that counts the entries that are read of it."""

    def __init__(self, array):
        self.array, self.shape, self.read = array, array.shape, 0

    def __len__(self):
        return len(self.array)

    def __getitem__(self, key):
        found = self.array[key]
        self.read += found.size
        return found


@pytest.mark.parametrize("count", [1000, 100_000])
def test_a_look_up_reads_as_many_entries_however_long_the_file_is(tmp_path, count):
    samples = np.random.default_rng(0).permutation(count) * 3
    index = written(tmp_path, samples, np.zeros(count, int), at_once=10_000)
    index._samples, index._rows = Counted(index._samples), Counted(index._rows)
    index.find(samples[:64], np.zeros(64, int))
    assert (index._samples.read, index._rows.read) == (64 * FENCE, 64)
    assert index._fences.nbytes == 8 * -(-count // FENCE)
    assert not index._samples.array.flags.owndata
    assert not index._rows.array.flags.owndata


def test_opening_takes_the_fences_alone(tmp_path):
    samples = np.random.default_rng(0).permutation(200_000) * 3
    entry = write_index(tmp_path, [(samples, np.zeros(200_000, int))], 200_000)
    tracemalloc.start()
    SortedIndex(tmp_path, entry, 200_000, 200_000).find(samples[:64], np.zeros(64, int))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000, "less than a byte for each row"


def test_rows_take_four_bytes_as_long_as_they_fit():
    assert index_layout(10, 2**31 - 1, 1)["rows"][0] == np.int32
    assert index_layout(10, 2**31, 1)["rows"][0] == np.int64


def change_index(directory, change):
    path = directory / "index.safetensors"
    arrays = load_file(path)
    change(arrays)
    write_tensors(path, arrays)
    vouch(directory, path.name)


def test_an_index_that_the_journal_vouches_for_still_leads_out_of_no_shard(tmp_path):
    rows = make_rows(69, 1)
    build_cache(tmp_path, rows, Teacher(), make_recipe(), shard_rows=10)

    def mislead(arrays):
        arrays["rows"][:20] = 10**6

    change_index(tmp_path, mislead)
    cache = open_cache(tmp_path)
    for row in np.argsort(rows.sample_ids)[:20].tolist():
        with pytest.raises(InputError, match=f"sample {rows.sample_ids[row]}, view 0: no such row is written"):
            cache.read(rows.sample_ids[row : row + 1])


def test_an_index_that_leads_to_other_rows_is_found_by_a_verification(tmp_path):
    build_cache(tmp_path, make_rows(69, 1), Teacher(), make_recipe(), shard_rows=10)
    assert verify_cache(tmp_path).passes

    def turn(arrays):
        arrays["rows"][[3, 4]] = arrays["rows"][[4, 3]]

    change_index(tmp_path, turn)
    (problem,) = verify_cache(tmp_path).problems
    assert "index.safetensors: sample " in problem
    assert "expected row" in problem


def test_a_damaged_or_lost_index_is_written_again_without_the_model(tmp_path):
    rows, recipe = make_rows(69, 1), make_recipe()
    build_cache(tmp_path, rows, Teacher(), recipe, shard_rows=10)
    path, journal, teacher = tmp_path / "index.safetensors", tmp_path / "shards.jsonl", Teacher()
    whole, lines = path.read_bytes(), journal.read_bytes()
    for damaged in (None, b"x", whole[:-1] + b"x"):
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        build_cache(tmp_path, rows, teacher, recipe)
        assert (path.read_bytes(), journal.read_bytes()) == (whole, lines)
    assert not teacher.rows_seen
