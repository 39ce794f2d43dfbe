"""SIGTERM: a run saves before it ends, and continues as if nothing had happened."""

import os
import signal

import pytest

from tpkd.training import loop
from tpkd.training.checkpoint import Checkpoints
from tpkd.training.loop import train
from tpkd.training.step import take_step
from training.equality import assert_same_run
from training.tiny import make_config, with_cache


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    directory = tmp_path_factory.mktemp("signals")
    train(with_cache(directory), directory / "whole")
    return directory


def terminate_at(step, monkeypatch, times=1):
    """Send the signal in the middle of a step; `times` twice must never come back."""

    def terminated(run, number, samples, **options):
        outcome = take_step(run, number, samples, **options)
        if number == step:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGTERM)
        return outcome

    monkeypatch.setattr(loop, "take_step", terminated)


def in_child(work):
    """How a child ends that does this: its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 99
    try:
        work()
        code = 0
    except SystemExit as end:
        code = end.code
    finally:
        os._exit(code)


@pytest.mark.parametrize("step", [2, 8, 15])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_saves_before_it_ends_and_continues_bit_for_bit(shared, tmp_path, monkeypatch, step, workers):
    """Before there is a checkpoint, at a step that has one anyway, and at the last."""
    config, run = make_config(shared, workers=workers), tmp_path / "run"
    with monkeypatch.context() as patch:
        terminate_at(step, patch)
        assert in_child(lambda: train(config, run)) == 128 + signal.SIGTERM
    assert Checkpoints(run / "checkpoints", keep=2).load().step == step
    assert (run / "run.log").read_text().endswith(f"stopped: SIGTERM, with a checkpoint of step {step}\n")
    train(config, run, resume=True)
    assert f"continued from step {step}" in (run / "run.log").read_text()
    assert_same_run(shared / "whole", run)


def test_a_second_signal_ends_the_run_at_once(shared, tmp_path, monkeypatch):
    terminate_at(6, monkeypatch, times=2)
    assert in_child(lambda: train(make_config(shared), tmp_path / "run")) == -signal.SIGTERM
    assert Checkpoints(tmp_path / "run" / "checkpoints", keep=2).load().step == 4


def test_signals_to_the_whole_process_group_spare_the_loaders(shared, tmp_path, monkeypatch):
    """As a scheduler sends it: the processes that prepare batches must not take the run along."""

    def terminated(run, number, samples, **options):
        outcome = take_step(run, number, samples, **options)
        if number == 6:
            os.killpg(0, signal.SIGTERM)
        return outcome

    monkeypatch.setattr(loop, "take_step", terminated)

    def work():
        os.setpgid(0, 0)
        train(make_config(shared, workers=2), tmp_path / "run")

    assert in_child(work) == 128 + signal.SIGTERM
    assert Checkpoints(tmp_path / "run" / "checkpoints", keep=2).load().step == 6


def test_a_program_with_a_handler_of_its_own_keeps_it(shared, tmp_path, monkeypatch):
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        terminate_at(6, monkeypatch)
        train(make_config(shared), tmp_path / "run")
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert_same_run(shared / "whole", tmp_path / "run")
