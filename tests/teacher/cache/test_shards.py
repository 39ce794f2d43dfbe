"""Shards are mapped when they are read, and only so many maps stand at a time."""

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
