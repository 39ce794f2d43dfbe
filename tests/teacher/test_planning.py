"""A forecast: a trial of the network, and what is computed from it."""

import itertools

import pytest

from tpkd.errors import InputError
from tpkd.teacher import planning
from tpkd.teacher.cache.plan import estimate_cache
from tpkd.teacher.cache.verify import cache_info
from tpkd.teacher.caching import build, plan_cache
from tpkd.teacher.planning import CacheForecast, Trial, forecast, measure
from training.tiny import make_config

SMALL = {"limit": 40, "epochs": 1, "views": {"num_views": 2, "pad": 1, "scale": 16}}


@pytest.fixture(autouse=True)
def short_trial(monkeypatch):
    monkeypatch.setattr(planning, "TRIAL_SECONDS", 0.01)


def test_a_forecast_of_the_rows_at_hand_is_what_a_build_writes(tmp_path):
    config = make_config(tmp_path, ["teacher.top_k=3"], **SMALL)
    found = forecast(config)
    assert CacheForecast.from_json(found.to_json()) == found
    assert not (tmp_path / "cache").exists(), "a trial leaves nothing"
    full, truncated = found.estimates
    assert full.kept == "10 classes, float16"
    assert truncated.kept.startswith("top 3 of 10 classes")
    build(config)
    info = cache_info(tmp_path / "cache")
    assert (truncated.rows, truncated.bytes, truncated.shards) == (80, info.bytes, info.shards)
    assert truncated.index_bytes == info.index_bytes > 0, "the ids of digits are in no order"


def test_rows_and_workers_of_another_size(tmp_path):
    config = make_config(tmp_path, **SMALL)
    found = forecast(config, rows=10**8, workers=8, shard_bytes=1 << 26)
    full, truncated = found.estimates
    assert truncated.kept.startswith("top 10 of 10 classes"), "there are no 64"
    for estimate in (full, truncated):
        assert (estimate.rows, estimate.workers) == (10**8, 8)
        assert estimate.shard_rows * estimate.row_bytes <= 1 << 26
    recipe = plan_cache(config).recipe
    speed = found.trial.rows_per_second
    assert full == estimate_cache(
        recipe, 10**8, views=2, in_order=False, workers=8, rows_per_second=speed, shard_bytes=1 << 26
    )


def test_the_first_block_of_a_trial_is_not_counted(tmp_path, monkeypatch):
    plan = plan_cache(make_config(tmp_path, **SMALL))
    monkeypatch.setattr(planning, "BLOCK_ROWS", 8)
    clock = itertools.count(0, 2)
    monkeypatch.setattr(planning.time, "perf_counter", lambda: next(clock))
    # Every look at the clock is 2 s later: at the start, before the first block and after each, and before another
    # build. Of ten blocks of the first build nine count, and five of the second until 37 s are over.
    trial = measure(plan, seconds=37)
    assert trial == Trial((9 + 5) * 8, 2 * (9 + 5))
    assert trial.rows_per_second == 4


def test_a_single_row_is_measured_too(tmp_path):
    plan = plan_cache(make_config(tmp_path, **SMALL | {"limit": 1, "views": {"num_views": 1, "scale": 16}}))
    assert measure(plan, seconds=0.001).rows_per_second > 0


def test_what_cannot_be_built_cannot_be_planned(tmp_path):
    with pytest.raises(InputError, match="network: expected teacher or initial, found 'student'"):
        forecast(make_config(tmp_path, **SMALL), "student")
