"""The command as a user meets it: exit codes, table, record, and a reproduction pasted into a shell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tpkd.check_loss.record import LossCheckRecord
from tpkd.cli.main import app, main

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Where the losses can be imported; what the command adds to the path is taken back."""
    monkeypatch.chdir(TESTS)
    monkeypatch.setattr(sys, "path", list(sys.path))


def invoke(*arguments):
    return CliRunner().invoke(app, ["check-loss", *arguments])


def test_a_sound_loss_is_exit_0():
    result = invoke("tpkd:tpkd_loss")
    assert result.exit_code == 0
    assert "0 fail" in result.stdout
    assert "python -c" not in result.stdout
    assert "called as tpkd_loss(student_logits=s, teacher_logits=t, labels=y)" in result.stdout


def test_a_faulty_loss_is_exit_1_with_commands_that_show_it(tmp_path):
    """In processes of their own, as a shell would run what was printed."""
    record = tmp_path / "record.json"
    command = [sys.executable, "-m", "tpkd", "check-loss", "check_loss.faulty:MeanOverClasses", "--json", str(record)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=TESTS)
    assert result.returncode == 1, result.stderr
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("python -c")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shown = subprocess.run(
        line, shell=True, capture_output=True, text=True, cwd=TESTS, env={**os.environ, "PATH": path}
    )
    assert shown.returncode == 0, shown.stderr
    found, expected = shown.stdout.removeprefix("found ").split(" expected ")
    assert (round(float(found), 6), float(expected)) == (0.5, 1.0)

    written = LossCheckRecord.from_json(record.read_text())
    assert [failure.name for failure in written.failures] == ["number of classes"]
    assert written.failures[0].reproduction == line
    assert json.loads(record.read_text())["schema"] == 1


def test_options_reach_the_battery():
    result = invoke("check_loss.faulty:MeanOverClasses", "--reduction", "elements")
    assert result.exit_code == 0
    result = invoke("check_loss.faulty:log_of_softmax", "--set", "alpha=1.0", "--set", "beta=8.0")
    assert result.exit_code == 1
    assert "alpha=1.0, beta=8.0, temperature=4.0" in result.stdout
    kl_div = ("torch.nn.functional:kl_div", "--argument", "student=input", "--argument", "teacher=target")
    forms = ("--student", "log-probabilities", "--teacher", "probabilities")
    assert invoke(*kl_div, *forms).exit_code == 1
    assert invoke(*kl_div, *forms, "--set", "reduction=batchmean", "--divergence", "kl").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check_loss.faulty:overwrite",), "did you mean overwrites?"),
        (("check_loss.fault:overwrites",), "did you mean faulty?"),
        (("tpkd:kd_loss", "--reduction", "men"), "did you mean mean?"),
        (("tpkd:kd_loss", "--divergence", "kll"), "did you mean kl?"),
        (("tpkd:kd_loss", "--teacher", "probs"), "did you mean probabilities?"),
        (("tpkd:kd_loss", "--set", "temprature=2"), "did you mean temperature?"),
        (("tpkd:kd_loss", "--json", "no/such/directory/record.json"), "no directory"),
    ],
)
def test_wrong_input_is_exit_2_and_one_line(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tpkd", "check-loss", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert words in error
