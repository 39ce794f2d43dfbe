"""Maps that stay open are few, are shared by all caches, and are closed with the last of them."""

import gc
import os
from pathlib import Path

import pytest

from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.teacher.cache import maps
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache

DESCRIPTORS = Path("/proc/self/fd")


def open_shards():
    """How many descriptors of this process lead to shards."""
    found = 0
    for link in DESCRIPTORS.iterdir():
        try:
            found += "shard-" in os.readlink(link)
        except OSError:  # the one that lists the directory
            continue
    return found


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="the system does not list open files")
def test_several_caches_share_the_room_for_maps(tmp_path, monkeypatch):
    rows = make_rows(30, 1)
    build_cache(tmp_path, rows, Teacher(), make_recipe(), shard_rows=1)
    monkeypatch.setattr(maps, "MAX_MAPS", 8)
    gc.collect()
    before = open_shards()
    caches = [open_cache(tmp_path) for _ in range(4)]
    assert open_shards() == before, "opening maps nothing for long"
    for _ in range(2):
        for cache in caches:
            cache.read(rows.sample_ids, rows.view_ids)
            assert 0 < open_shards() - before <= 8
    del cache
    caches.clear()
    gc.collect()
    assert open_shards() <= before


def test_the_limit_of_the_process_is_asked_for_anew(monkeypatch):
    monkeypatch.setattr(maps, "MAX_MAPS", 3)
    first = maps.open_maps()
    assert maps.open_maps() is first
    monkeypatch.setattr(maps, "MAX_MAPS", 2)
    assert maps.open_maps() is not first
    maps.close_maps()
