"""Caches of version 0.1 open, read, verify and say what they are, as they always did."""

import shutil

import numpy as np
import pytest

from teacher.cache.earlier_caches import EARLIER, NAMES, earlier_recipe, earlier_rows
from teacher.cache.toys import Teacher, assert_true_rows
from tpkd.errors import InputError
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.rows import RowIndex
from tpkd.teacher.cache.runs import RunIndex
from tpkd.teacher.cache.verify import cache_info, verify_cache

FINISHED = [name for name in NAMES if name != "unfinished"]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", FINISHED)
def test_every_row_is_read(name, check):
    cache, rows = open_cache(EARLIER / name, expected=earlier_recipe(name), check=check), earlier_rows(name)
    order = np.random.default_rng(0).permutation(10)
    samples, views = rows.sample_ids[order], rows.view_ids[order]
    assert_true_rows(cache.read(samples, views), samples, views)
    assert (len(cache), cache.num_views) == (10, 2)
    assert cache.sample_ids.tolist() == rows.sample_ids.tolist()
    with pytest.raises(InputError, match="sample 77, view 0: no such row"):
        cache.read([77], [0])
    assert isinstance(cache._index, RunIndex if name == "ids-in-order" else RowIndex | RunIndex)


@pytest.mark.parametrize("name", NAMES)
def test_what_they_are(name):
    info = cache_info(EARLIER / name)
    assert (info.rows, info.views, info.shard_rows, info.index_bytes) == (10, 2, 4, 0)
    assert (info.complete, info.rows_written, info.shards) == ((False, 4, 1) if name == "unfinished" else (True, 10, 3))
    assert info.bytes == sum(path.stat().st_size for path in (EARLIER / name).glob("shard-*"))


@pytest.mark.parametrize("name", FINISHED)
def test_they_are_verified_with_the_model(name):
    report = verify_cache(EARLIER / name, forward=Teacher(), rows=earlier_rows(name))
    assert (report.passes, report.rows_recomputed) == (True, 10)


def test_an_unfinished_one_is_refused_unless_asked_for():
    with pytest.raises(InputError, match="expected 10 rows, found 4 written; build it again"):
        open_cache(EARLIER / "unfinished")
    cache, rows = open_cache(EARLIER / "unfinished", partial=True), earlier_rows("unfinished")
    samples, views = rows.sample_ids[:4], rows.view_ids[:4]
    assert_true_rows(cache.read(samples, views), samples, views)
    with pytest.raises(InputError, match="no such row is written"):
        cache.read(rows.sample_ids[4:5], rows.view_ids[4:5])


@pytest.mark.parametrize("name", FINISHED)
def test_their_damage_is_named(tmp_path, name):
    place = shutil.copytree(EARLIER / name, tmp_path / "cache")
    first, second = place / "shard-00000.safetensors", place / "shard-00001.safetensors"
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    with pytest.raises(InputError, match=r"shard-00000\.safetensors: expected SHA-256"):
        open_cache(place)
    with pytest.raises(InputError, match="expected rows with keys"):
        open_cache(place, check=False)
    first.unlink()
    with pytest.raises(InputError, match=r"shard-00000\.safetensors: cannot be read: No such file"):
        open_cache(place, check=False)


@pytest.mark.parametrize("place", ["shards", "rows", "file", "sha256"])
def test_a_manifest_that_contradicts_itself_is_refused_by_field(tmp_path, place):
    import json

    path = shutil.copytree(EARLIER / "truncated", tmp_path / "cache") / "manifest.json"
    manifest = json.loads(path.read_text())
    if place == "shards":
        manifest["shards"].append(manifest["shards"][-1])
    else:
        manifest["shards"][1][place] = {"rows": 3, "file": "../x", "sha256": "x"}[place]
    path.write_text(json.dumps(manifest))
    expected = "shards: expected at most 3" if place == "shards" else rf"shards\[1\]\.{place}: expected"
    with pytest.raises(InputError, match=f"manifest.json: {expected}"):
        open_cache(path.parent)
