"""Shards are looked at when a row of them is read, and not before."""

import tracemalloc

import numpy as np
import pytest
import torch

from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.errors import InputError
from tpkd.teacher.cache import tensors
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.contents import read_contents
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.shard_set import ShardSet


@pytest.fixture
def opened(monkeypatch):
    """The files that were opened, in order."""
    paths, true_open = [], tensors.open_regular
    monkeypatch.setattr(tensors, "open_regular", lambda path: paths.append(path.name) or true_open(path))
    return paths


@pytest.mark.parametrize("sizes", [(23, 3), (69, 1)], ids=["by arithmetic", "by the index"])
def test_opening_opens_no_shard_and_reading_those_of_its_rows(tmp_path, opened, sizes):
    rows = make_rows(*sizes)
    build_cache(tmp_path, rows, Teacher(), make_recipe(), shard_rows=10)
    opened.clear()
    cache = open_cache(tmp_path, check=False)
    assert set(opened) <= {"index.safetensors"}
    for chosen, names in ([35, 38], {"shard-00003"}), ([1, 68, 2], {"shard-00000", "shard-00006"}), ([0, 39], set()):
        opened.clear()
        cache.read(rows.sample_ids[chosen], rows.view_ids[chosen])
        assert {name.removesuffix(".safetensors") for name in opened} == names


def big_cache(directory, rows, shuffled):
    ids = np.random.default_rng(0).permutation(rows) if shuffled else np.arange(rows)
    keys = CacheRows(ids, np.zeros(rows, int), lambda start, stop: stop - start)
    recipe = CacheRecipe("m", "d", {}, None, 2)
    build_cache(
        directory, keys, lambda count: {"logits": torch.zeros(count, 2)}, recipe, shard_rows=rows // 5, block_rows=rows
    )


@pytest.mark.parametrize("shuffled", [False, True], ids=["by arithmetic", "by the index"])
def test_an_open_cache_holds_no_table_of_its_rows(tmp_path, shuffled):
    """All keys and a table of rows in every process would take tens of bytes for each row."""
    rows, peaks = (5_000, 205_000), []
    for count in rows:
        big_cache(tmp_path / str(count), count, shuffled)
        tracemalloc.start()
        cache = open_cache(tmp_path / str(count), check=False)
        cache.read([0, 7, count - 1])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(cache) == count
    assert peaks[1] - peaks[0] < (rows[1] - rows[0]) / 2


def test_a_part_is_read_by_the_numbers_of_the_whole(tmp_path):
    rows = make_rows()
    build_cache(tmp_path, rows, Teacher(), make_recipe(dtype="float32"), shard_rows=10, part=Part(2, 2))
    shards = ShardSet(read_contents(tmp_path))
    assert len(shards) == 4
    found = torch.frombuffer(shards.gather("logits", np.array([68, 30])), dtype=torch.float32).view(2, 5)
    expected = Teacher()(rows.inputs(0, 69))["logits"][[68, 30]]
    assert torch.equal(found, expected)
    assert shards.all_of("sample_ids").tolist() == rows.sample_ids[30:].tolist()


def test_keys_of_another_order_are_refused(tmp_path):
    """Two rows of a shard that changed places, and a journal that vouches for the file."""
    from safetensors.numpy import load_file

    from teacher.cache.journals import vouch

    build_cache(tmp_path, make_rows(69, 1), Teacher(), make_recipe(), shard_rows=10)
    path = tmp_path / "shard-00004.safetensors"
    arrays = load_file(path)
    arrays["sample_ids"][[3, 4]] = arrays["sample_ids"][[4, 3]]
    tensors.write_tensors(path, arrays)
    vouch(tmp_path, path.name)
    with pytest.raises(InputError, match=r"expected rows with keys [0-9a-f]{64}, found"):
        ShardSet(read_contents(tmp_path)).check_keys()
