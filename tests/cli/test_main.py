"""The command line as a user meets it: in a process of its own, by exit code and output."""

import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tpkd.cli.main import app
from tpkd.objectives.kernels import cpu, gpu


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "tpkd", *arguments], capture_output=True, text=True)


def test_version_tells_what_is_installed(monkeypatch):
    assert run("--version").stdout == CliRunner().invoke(app, ["--version"]).stdout
    for kernel, told in ((object(), "with"), (None, "without")):
        monkeypatch.setattr(cpu, "_kernel", kernel)
        result = CliRunner().invoke(app, ["--version"])
        assert result.exit_code == 0
        expected = f"tpkd {version('tpkd')} {told} its kernel, torch {version('torch')}, Python 3."
        assert result.stdout.startswith(expected)


@pytest.mark.parametrize("reason", ["Triton is not installed", "Triton 3.5.1 is older than 3.6"])
def test_version_tells_why_gpus_run_tensor_code(monkeypatch, reason):
    monkeypatch.setattr(gpu, "why_not", lambda: reason)
    assert CliRunner().invoke(app, ["--version"]).stdout.endswith(f"\non GPUs: tensor code ({reason})\n")


@pytest.mark.parametrize("arguments", [("no-such-verb",), ("diagnose",), ("diagnose", "--no-such-option")])
def test_wrong_usage_is_exit_2_without_a_traceback(arguments):
    result = run(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("verb", sorted(get_command(app).commands))
def test_help_of_every_verb_shows_an_example(verb):
    result = run(verb, "--help")
    assert result.returncode == 0
    command = get_command(app).commands[verb]
    for subcommand in getattr(command, "commands", {verb: command}).values():
        assert "Example: tpkd" in subcommand.help
