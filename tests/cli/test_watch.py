"""`tpkd watch` as a user meets it."""

import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from cli.training_runs import run
from watch.runs import write_grid, write_run


def test_a_page_is_written_once(tmp_path, capsys, monkeypatch):
    write_run(tmp_path / "run")
    code, out, _ = run(capsys, monkeypatch, "watch", tmp_path / "run", "--out", tmp_path / "live.html", "--once")
    assert (code, out) == (0, f"page: {tmp_path / 'live.html'}\n")
    assert '"every":null' in (tmp_path / "live-data" / "cells.js").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "missing: expected the directory of a run or a grid, found no directory"),
        (["run", "--once"], "--once: expected --out"),
        (["run", "--out", "page.html", "--port", "8000"], "--port: expected no --out"),
        (["run", "--out", "page.txt"], "page.txt: expected a name that ends in .html"),
    ],
)
def test_refusals_are_one_line(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    code, out, error = run(capsys, monkeypatch, "watch", *arguments)
    assert (code, out) == (2, "")
    assert error.startswith(f"tpkd: {message}")
    assert error.count("\n") == 1


def test_a_port_that_is_taken_is_named(tmp_path, capsys, monkeypatch):
    import socket

    write_run(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, error = run(capsys, monkeypatch, "watch", tmp_path / "run", "--port", port)
    assert code == 2
    assert error.startswith(f"tpkd: --port {port}: ")


@pytest.mark.parametrize("kind", ["address", "file"])
def test_ctrl_c_is_one_line_and_leaves_the_page_in_order(tmp_path, kind):
    write_grid(tmp_path / "grid")
    page = tmp_path / "live.html"
    options = [] if kind == "address" else ["--out", str(page)]
    command = [sys.executable, "-m", "tpkd", "watch", str(tmp_path / "grid"), *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        place = process.stdout.readline().removeprefix("page: ").strip()
        if kind == "address":
            assert "tpkdWatch" in urllib.request.urlopen(place, timeout=60).read().decode()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert error.startswith("tpkd: interrupted; the runs go on; to watch them again: tpkd watch ")
    assert error.count("\n") == 1
    if kind == "file":
        assert '"every":null' in (tmp_path / "live-data" / "cells.js").read_text()
