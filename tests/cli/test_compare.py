"""`tpkd compare` as a user meets it: a grid that is killed and run again, what it prints, and how it refuses."""

import hashlib
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from cli.training_runs import run
from demo.small_demo import small_demo
from tpkd.compare.run import read_comparison
from tpkd.demo.run import CONFIGS
from tpkd.training.checkpoint import Checkpoints

SMALL = ("limit=64", "evaluation.limit=50", "epochs=3", "batch_size=8", "methods={}", "monitor_every=4")


def arguments(directory, *overrides):
    made = small_demo().report.parent
    places = (
        f"output={directory}/runs/{{objective}}-{{seed}}",
        f"teacher.weights={made}/teacher/student.safetensors",
        f"teacher.cache={directory}/cache",
    )
    return ["compare", str(CONFIGS / "demo.yaml"), *places, *SMALL, *overrides]


def results(directory):
    return {path: hashlib.sha256(path.read_bytes()).digest() for path in directory.rglob("result.json")}


def finished_cells(directory):
    """A cell is finished with its diagnosis, which comes after its result."""
    return list((directory / "runs" / "students").glob("*.json"))


def test_a_grid_that_is_killed_and_run_again_keeps_its_finished_cells(tmp_path):
    command = [sys.executable, "-m", "tpkd", *arguments(tmp_path), "--methods", "ce,kd,tpkd", "--seeds", "1,2"]
    command += ["--jobs", "1"]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 300
        while not finished_cells(tmp_path) and time.monotonic() < deadline and first.poll() is None:
            time.sleep(0.02)
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
    kept, waiting = results(tmp_path), 6 - len(finished_cells(tmp_path))
    assert 0 < waiting < 6
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert len(results(tmp_path)) == 6
    for path, digest in kept.items():
        assert results(tmp_path)[path] == digest
        assert (path.parent / "run.log").read_text().count("started") == 1
    record = read_comparison(tmp_path / "runs")
    assert {cell.status for cell in record.cells} == {"finished"}
    assert f"({waiting} of {waiting})" in again.stderr
    assert f"next: tpkd report {tmp_path / 'runs'}" in again.stdout


def test_failed_cells_are_exit_1_and_named(tmp_path, capsys, monkeypatch):
    (tmp_path / "runs" / "kd-5").mkdir(parents=True)
    (tmp_path / "runs" / "kd-5" / "thesis.tex").write_text("mine")
    code, out, err = run(capsys, monkeypatch, *arguments(tmp_path), "--methods", "ce,kd", "--seeds", "5", "--jobs", "1")
    assert code == 1
    assert "ce-5 finished (1 of 2)" in err
    assert "kd-5 failed" in out
    assert "thesis.tex" in out
    assert "1 of 1" in out


def test_ctrl_c_is_one_line_with_the_command_that_goes_on(tmp_path, capsys, monkeypatch):
    def interrupted(*arguments, **settings):
        signal.raise_signal(signal.SIGINT)

    command = [*arguments(tmp_path), "--methods", "ce", "--seeds", "5", "--jobs", "1"]
    with monkeypatch.context() as patch:
        patch.setattr("tpkd.compare.run.run_jobs", interrupted)
        code, out, err = run(capsys, monkeypatch, *command)
    assert (code, out) == (130, "")
    expected = "tpkd: interrupted; what is finished stays, the same command continues: tpkd "
    assert err.splitlines()[-1] == expected + shlex.join(command)
    assert "Traceback" not in err
    assert run(capsys, monkeypatch, *command)[0] == 0


def test_a_grid_that_is_terminated_lets_its_cells_save(tmp_path):
    """The signal goes to the whole process group, as a scheduler sends it."""
    long = arguments(tmp_path, "epochs=2000", "checkpoints.every=100000")
    command = [sys.executable, "-m", "tpkd", *long, "--methods", "ce", "--seeds", "1", "--jobs", "1"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0)
    cell = tmp_path / "runs" / "ce-1"
    try:
        deadline = time.monotonic() + 300
        while not (cell / "metrics.jsonl").exists() or not (cell / "metrics.jsonl").stat().st_size:
            assert time.monotonic() < deadline
            assert running.poll() is None
            time.sleep(0.02)
        os.killpg(running.pid, signal.SIGTERM)
        _, err = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 143, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("tpkd: terminated; what is finished stays, the same command continues")
    (step,) = Checkpoints(cell / "checkpoints", keep=2).steps()
    assert (cell / "run.log").read_text().endswith(f"stopped: SIGTERM, with a checkpoint of step {step}\n")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--methods", "tkpd"], "did you mean tpkd"),
        (["--seeds", "one"], "--seeds: expected comma-separated integers"),
        (["epoch=3"], "epoch: unknown key"),
        (["data.name=cifar10"], "did you mean cifar100"),
        (["student.model=builtin:resnet55"], "did you mean builtin:resnet56"),
        (["student.options.input_size=10"], "student.model: builtin:mlp does not fit the inputs of digits"),
        (["output=runs/all"], "output: expected {objective} and {seed}"),
    ],
)
def test_wrong_input_is_exit_2_and_one_line(more, message, tmp_path, capsys, monkeypatch):
    code, _, err = run(
        capsys,
        monkeypatch,
        *arguments(tmp_path, *[each for each in more if "=" in each]),
        *[each for each in more if "=" not in each],
    )
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("trained", [True, False])
def test_how_often_the_teacher_is_right_comes_before_the_cells(tmp_path, capsys, monkeypatch, trained):
    overrides = [] if trained else ["teacher.weights=null", "teacher.untrained=true"]
    command = [*arguments(tmp_path, *overrides), "--methods", "kd", "--seeds", "5", "--jobs", "1"]
    code, _, err = run(capsys, monkeypatch, *command)
    assert code == 0
    before = err[: err.index("kd-5 started")]
    assert "64 training samples, the student on" in before
    assert "of 512 cached rows." in before
    assert "of 50 test samples, the student on" in before
    assert ("Warning: the teacher seems to know nothing" in before) != trained
