"""A command that is stopped says in one line how its work goes on."""

import signal

import pytest
import typer

from tpkd.cli.interruption import INTERRUPTED, interruptible


def test_ctrl_c_is_one_line_and_the_exit_code_of_a_shell(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["tpkd", "train", "my run.yaml"])
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(typer.Exit) as stopped, interruptible(lambda: "it goes on"):
        signal.raise_signal(signal.SIGINT)
    assert stopped.value.exit_code == INTERRUPTED
    assert capsys.readouterr().err == "tpkd: interrupted; it goes on: tpkd train 'my run.yaml'\n"


def test_what_is_not_stopped_says_nothing(capsys):
    with interruptible():
        pass
    assert capsys.readouterr() == ("", "")
