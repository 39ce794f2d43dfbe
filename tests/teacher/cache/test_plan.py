"""What is promised before a build is what is found after it, to the byte."""

import numpy as np
import pytest
import torch

from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.index import SortedIndex
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.plan import CacheEstimate, estimate_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.verify import cache_info


def built(directory, recipe, samples, views, in_order, shard_bytes):
    ids = np.arange(samples) if in_order else np.random.default_rng(0).permutation(samples) * 2
    rows = CacheRows.of_views(ids, views, lambda positions, views: len(positions), np.zeros(samples, int))
    outputs = {"logits": recipe.num_classes, **recipe.tensors}
    build_cache(
        directory,
        rows,
        lambda count: {name: torch.zeros(count, width) for name, width in outputs.items()},
        recipe,
        shard_bytes=shard_bytes,
        block_rows=1000,
    )
    return rows


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(
    ("recipe", "samples", "views", "shard_bytes"),
    [
        (CacheRecipe("m", "d", {}, None, 10), 1000, 1, 1 << 28),
        (CacheRecipe("m", "d", {}, None, 10), 1000, 3, 5000),
        (CacheRecipe("m", "d", {}, None, 100, top_k=7), 999, 2, 3000),
        (CacheRecipe("m", "d", {}, None, 5, "float32", {"layer_1": 3}), 20_000, 1, 1 << 28),
        (CacheRecipe("m", "d", {}, None, 1000), 7, 1, 10),
    ],
)
def test_an_estimate_is_what_a_build_writes(tmp_path, recipe, samples, views, shard_bytes, in_order):
    rows = built(tmp_path, recipe, samples, views, in_order, shard_bytes)
    found = estimate_cache(recipe, samples * views, views=views, in_order=in_order, shard_bytes=shard_bytes)
    info = cache_info(tmp_path)
    assert (found.rows, found.shard_rows, found.shards) == (len(rows), info.shard_rows, info.shards)
    assert found.bytes == info.bytes == sum(path.stat().st_size for path in tmp_path.glob("shard-*.safetensors"))
    index = open_cache(tmp_path, check=False)._index
    if isinstance(index, SortedIndex):  # keys of few rows may be found by arithmetic even if they are in no order
        assert found.index_bytes == info.index_bytes == (tmp_path / "index.safetensors").stat().st_size
        assert found.index_memory == index._fences.nbytes
        assert found.files == len([path for path in tmp_path.iterdir() if path.name != ".lock"])
    if in_order:
        assert (found.index_bytes, found.index_memory) == (info.index_bytes, 0) == (0, 0)
        assert found.files == len([path for path in tmp_path.iterdir() if path.name != ".lock"])
    assert CacheEstimate.from_json(found.to_json()) == found


def test_the_largest_part_is_that_of_the_parts():
    recipe = CacheRecipe("m", "d", {}, None, 10)
    for workers in (1, 2, 3, 5, 64):
        found = estimate_cache(recipe, 1_000_003, workers=workers, rows_per_second=100)
        parts = [Part(number, workers).shards(found.shards) for number in range(1, workers + 1)]
        sizes = [sum(min(found.shard_rows, found.rows - shard * found.shard_rows) for shard in part) for part in parts]
        assert found.largest_part == max(sizes)
        assert found.minutes == pytest.approx(max(sizes) / 100 / 60)
    assert estimate_cache(recipe, 10).minutes is None


@pytest.mark.parametrize("name", ["rows", "views", "workers"])
def test_numbers_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
        estimate_cache(CacheRecipe("m", "d", {}, None, 10), **{"rows": 10, name: 0})
