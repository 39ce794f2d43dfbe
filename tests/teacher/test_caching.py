"""Building a cache from a configuration: once, again where it is damaged, and what is said about the teacher."""

import pytest

from tpkd.errors import InputError
from tpkd.teacher import caching, network
from training.tiny import make_config, with_cache

SMALL = {"limit": 40, "epochs": 1, "views": {"num_views": 2, "pad": 1, "scale": 16}}


def test_a_finished_cache_is_found_finished_without_the_teacher(tmp_path, monkeypatch):
    config = with_cache(tmp_path, **SMALL)
    builds, build = [], network.build_model
    monkeypatch.setattr(network, "build_model", lambda spec: builds.append(spec) or build(spec))
    told = []
    caching.build(config, on_progress=told.append)
    assert not builds
    assert [(progress.rows_done, progress.rows_total) for progress in told] == [(80, 80)]
    shard = tmp_path / "cache" / "shard-00000.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    caching.build(config)  # what is damaged is computed again, for which the teacher is needed
    assert len(builds) == 1
    assert shard.read_bytes() == content


def test_a_network_or_a_place_that_is_not_there_is_refused(tmp_path):
    config = make_config(tmp_path, **SMALL)
    with pytest.raises(InputError, match="network: expected teacher or initial, found 'student'"):
        caching.plan_cache(config, "student")
    with pytest.raises(InputError, match=r"initial\.cache: missing, and the cache needs a directory"):
        caching.plan_cache(make_config(tmp_path, **SMALL, initial={}), "initial")
