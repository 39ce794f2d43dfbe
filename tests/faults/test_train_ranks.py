"""Two processes that share every batch do what one process does."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from faults.train_ranks import all_steps
from faults.train_ranks_change import change_config, stop, stopped
from tpkd.mechanism.bench import open_bench
from tpkd.training.directory import read_result
from tpkd.training.loop import train
from tpkd.training.randomness import random_state
from training.equality import assert_same_run, metrics_of
from training.steps import assert_close
from training.tiny import make_config, with_cache
from two_processes import run_two

TOLERANCE = {"float32": 1e-6, "float64": 1e-12}
"""The same sums in another order."""


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """A directory in which two processes have done their work, started as torchrun would start them."""
    directory = tmp_path_factory.mktemp("ranks")
    with_cache(directory)
    run_two(Path(__file__).with_name("train_ranks.py"), directory)
    return directory


def test_both_processes_hold_the_same_gradients(together, record_property):
    first, second = (load_file(together / f"rank-{rank}.safetensors") for rank in range(2))
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.equal(second[name]), name
    record_property("fault: steps shared by two processes", len({name.rsplit("/", 1)[0] for name in first}))


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_two_processes_of_32_give_the_gradient_of_one_batch_of_64(together, dtype):
    found, expected = load_file(together / "rank-0.safetensors"), all_steps(together, 64)
    mine = [{name: value for name, value in each.items() if name.startswith(dtype)} for each in (found, expected)]
    assert_close(*mine, TOLERANCE[dtype])


def test_a_whole_run_of_two_processes_follows_that_of_one(together):
    config = make_config(together, evaluation={"limit": 100, "batch_size": 7})
    result, alone = read_result(together / "two"), train(config, together / "one")
    assert (result.processes, alone.processes) == (2, 1)
    assert (result.steps, result.samples, result.test_samples) == (alone.steps, alone.samples, alone.test_samples)
    assert result.accuracy == pytest.approx(alone.accuracy, abs=0.011)  # of 100 samples one may turn over
    for one, two in zip(metrics_of(together / "one"), metrics_of(together / "two"), strict=True):
        assert one.pop("kind") == two.pop("kind")
        one.pop("accuracy", None), two.pop("accuracy", None)
        assert two == pytest.approx(one, rel=1e-3, abs=1e-4)  # rounding, over fifteen steps


def test_two_processes_continue_bit_for_bit(together):
    assert "continued from step 4" in (together / "stopped" / "run.log").read_text()
    assert_same_run(together / "unbroken", together / "stopped")


def test_two_processes_select_the_same_student_with_or_without_a_stop(together):
    """The statistics of its batches are those of the first process, in files and in the evaluation of both."""
    result = read_result(together / "selecting")
    assert result.selected_epoch <= 2
    assert "continued from step 12" in (together / "selecting-stopped" / "run.log").read_text()
    assert_same_run(together / "selecting", together / "selecting-stopped")


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """A directory in which two processes stopped runs, and continued one that a single process had begun."""
    directory = tmp_path_factory.mktemp("changed")
    with_cache(directory)
    stopped(change_config(directory), directory / "grown", stop)
    run_two(Path(__file__).with_name("train_ranks_change.py"), directory)
    return directory


def test_a_signal_to_one_process_saves_and_stops_them_all(changed):
    log = (changed / "terminated" / "run.log").read_text()
    assert "stopped: SIGTERM, with a checkpoint of step 7" in log
    assert "continued from step 7" in log
    assert_same_run(changed / "unbroken", changed / "terminated")


@pytest.mark.parametrize(("name", "before", "now"), [("grown", 1, 2), ("shrunk", 2, 1)])
def test_a_checkpoint_continues_on_another_number_of_processes(changed, name, before, now):
    """On the same samples in the same batches; dropout is drawn by other generators, so that it is another run."""
    result = train(change_config(changed), changed / name)
    assert (result.processes, result.steps, result.samples) == (now, 15, 450)
    told = f"continued from step 4; the last bits may differ from here on: processes {before} -> {now}"
    assert told in (changed / name / "run.log").read_text()
    assert result.accuracy == pytest.approx(read_result(changed / "unbroken").accuracy, abs=0.1)


def test_a_run_of_two_processes_can_be_studied(changed):
    """Put back with the generators of its first process."""
    bench = open_bench(change_config(changed), changed / "unbroken")
    snapshot = bench.snapshot(1)
    assert snapshot.checkpoint.values["processes"] == 2
    assert random_state()["torch"].equal(snapshot.checkpoint.groups["random"]["0.torch"])
