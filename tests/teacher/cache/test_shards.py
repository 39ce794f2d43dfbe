"""How rows are cut into shards, which are mapped when they are read, and only so many at a time."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from teacher.cache.toys import Teacher, make_recipe, make_rows, true_logits
from tpkd.errors import InputError
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.shards import FEW_ROWS, MANY_SHARDS, SHARD_BYTES, row_bytes, rows_per_shard, shard_number

resource = pytest.importorskip("resource")


@pytest.fixture
def many_shards(tmp_path):
    rows = make_rows(120, 1)
    build_cache(tmp_path / "cache", rows, Teacher(), make_recipe(), shard_rows=1)
    return tmp_path / "cache", rows


@pytest.fixture
def few_files():
    """Only a few more files than those that stand open may be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)  # the lowest number that is free
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 48, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_a_cache_may_have_more_shards_than_a_process_files(many_shards):
    directory, rows = many_shards
    cache = open_cache(directory)
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(rows)), 3))
    samples, views = rows.sample_ids[order], rows.view_ids[order]
    assert torch.equal(cache.read(samples, views), true_logits(samples, views))
    assert torch.equal(torch.cat(list(cache.array().blocks(50))).float(), true_logits(rows.sample_ids, rows.view_ids))


@pytest.mark.usefixtures("few_files")
def test_threads_share_the_maps(many_shards):
    directory, rows = many_shards
    cache, start = open_cache(directory), threading.Barrier(4)

    def read(seed):
        start.wait()
        for round_number in range(10):
            order = np.random.default_rng([seed, round_number]).permutation(len(rows))
            samples, views = rows.sample_ids[order], rows.view_ids[order]
            if not torch.equal(cache.read(samples, views), true_logits(samples, views)):
                return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(4)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_worker_reads_the_same_rows(many_shards):
    directory, rows = many_shards
    cache = open_cache(directory)
    expected = true_logits(rows.sample_ids, rows.view_ids)
    assert torch.equal(cache.read(rows.sample_ids[:5], rows.view_ids[:5]), expected[:5])
    child = os.fork()
    if not child:
        os._exit(0 if torch.equal(cache.read(rows.sample_ids, rows.view_ids), expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(cache.read(rows.sample_ids, rows.view_ids), expected)


def test_a_shard_that_is_replaced_while_the_cache_is_open_is_refused(many_shards):
    directory, rows = many_shards
    cache = open_cache(directory)
    shard = directory / "shard-00007.safetensors"
    content = shard.read_bytes()
    shard.unlink()
    shard.write_bytes(content)
    os.utime(shard, ns=(0, 0))
    with pytest.raises(InputError, match=r"shard-00007\.safetensors: .* was replaced since"):
        cache.read(rows.sample_ids, rows.view_ids)


@pytest.mark.parametrize("num_classes", [2, 100, 151_936])
@pytest.mark.parametrize("rows", [1, 10_000, 10**6, 10**8, 10**10])
@pytest.mark.parametrize("top_k", [None, 2])
def test_a_shard_is_as_large_as_it_may_be_unless_there_would_be_few(num_classes, rows, top_k):
    recipe = CacheRecipe("m", "d", {}, None, num_classes, top_k=top_k)
    count, width = rows_per_shard(recipe, rows), row_bytes(recipe)
    shards = -(-rows // count)
    assert count * width <= SHARD_BYTES
    full = (count + 1) * width > SHARD_BYTES
    assert full or shards <= MANY_SHARDS, "another row would not fit, or there are not many"
    assert count >= FEW_ROWS or full
    if full:
        assert shards == -(-rows // (SHARD_BYTES // width))


def test_a_row_that_is_larger_than_a_shard_may_be_is_a_shard():
    assert rows_per_shard(CacheRecipe("m", "d", {}, None, 1000), 10**6, shard_bytes=10) == 1


@pytest.mark.parametrize(
    "name", ["shard-1.safetensors", "shard-000001.safetensors", "shard-00001", "../x", "shard-00001.x"]
)
def test_another_name_is_that_of_no_shard(name):
    assert shard_number(name) is None
    assert [shard_number(f"shard-{number}.safetensors") for number in ("00000", "99999", "100000")] == [
        0,
        99999,
        100000,
    ]
