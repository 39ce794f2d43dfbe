"""Runs of keys, and rows that are found by arithmetic: compared with a loop and with a dictionary."""

import numpy as np
import pytest

from tpkd.teacher.cache import runs as module
from tpkd.teacher.cache.runs import Run, RunIndex, find_runs, run_index


def loop_runs(samples, views, num_views):
    """One key after the other."""
    found = []
    for position, key in enumerate(zip(samples.tolist(), views.tolist(), strict=True)):
        sample, view = key if not position else (samples[position - 1], views[position - 1])
        following = (sample, view + 1) if view + 1 < num_views else (sample + 1, 0)
        if position and key == following:
            found[-1][2] += 1
        else:
            found.append([*key, 1])
    return tuple(map(tuple, found))


def keys_of(runs, num_views):
    """The keys of runs, spelled out."""
    keys = [
        (run.sample + (run.view + step) // num_views, (run.view + step) % num_views)
        for run in runs
        for step in range(run.rows)
    ]
    return np.array(keys, np.int64).reshape(-1, 2).T.copy()


def random_runs(generator, num_views):
    """Runs without a sample in common, in any order, in all parts of the range of ids."""
    starts = generator.permutation([-(2**63) + 5, -40, 0, 30, 2**40, 2**63 - 30])[: generator.integers(1, 7)]
    return [
        Run(int(start), int(generator.integers(num_views)), int(generator.integers(1, 20 * num_views)))
        for start in starts
    ]


@pytest.mark.parametrize("seed", range(20))
def test_runs_are_those_of_a_loop_however_keys_are_cut_into_blocks(monkeypatch, seed):
    generator = np.random.default_rng(seed)
    num_views = int(generator.integers(1, 4))
    samples, views = keys_of(random_runs(generator, num_views), num_views)
    monkeypatch.setattr(module, "_BLOCK", int(generator.integers(1, 30)))
    expected = loop_runs(samples, views, num_views)
    assert find_runs(samples, views, num_views, most=len(expected)) == expected
    assert find_runs(samples, views, num_views, most=len(expected) - 1) is None


def test_views_that_are_not_numbers_from_0_are_no_runs():
    samples = np.arange(3)
    for views in (np.full(3, 6), np.array([0, -1, 0])):
        assert find_runs(samples, views, 1) is None
    assert find_runs(samples[:0], samples[:0], 1) == ()


@pytest.mark.parametrize("seed", range(20))
def test_arithmetic_agrees_with_a_dictionary(seed):
    generator = np.random.default_rng(seed)
    num_views, first = int(generator.integers(1, 4)), int(generator.integers(100))
    runs = random_runs(generator, num_views)
    samples, views = keys_of(runs, num_views)
    table = {key: row for row, key in enumerate(zip(samples.tolist(), views.tolist(), strict=True), first)}
    cut = sorted(generator.integers(0, len(samples), 3))  # shards, which end anywhere
    pieces = [find_runs(s, v, num_views) for s, v in zip(np.split(samples, cut), np.split(views, cut), strict=True)]
    index = run_index(pieces, num_views, first)
    assert len(index) == len(loop_runs(samples, views, num_views))
    wanted_samples = np.concatenate([samples, samples - 1, samples + 1, generator.choice([3, -(2**63), 2**63 - 1], 50)])
    wanted_views = np.concatenate([np.tile(views, 3), generator.choice([0, 1, -1, 2**63 - 1], 50)])
    keys = zip(wanted_samples.tolist(), wanted_views.tolist(), strict=True)
    assert index.find(wanted_samples, wanted_views).tolist() == [table.get(key, -1) for key in keys]


def test_a_key_so_far_away_that_the_product_overflows_is_not_found():
    index = RunIndex([Run(-(2**62), 0, 4)], 2)
    assert index.find(np.array([2**62, -(2**62) + 1]), np.array([0, 1])).tolist() == [-1, 3]


def test_runs_that_share_a_sample_are_not_for_arithmetic():
    with pytest.raises(ValueError, match="runs: expected each sample in one, got sample 5 in several"):
        RunIndex([Run(5, 1, 1), Run(5, 0, 1)], 2)
    assert run_index([[Run(5, 1, 1), Run(5, 0, 1)]], 2) is None
    assert run_index([[Run(5, 0, 1), Run(5, 1, 1)]], 2) is not None  # one continues the other
    assert run_index([], 2).find(np.array([1]), np.array([0])).tolist() == [-1]
