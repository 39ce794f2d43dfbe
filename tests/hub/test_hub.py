"""A hub that does not answer is noticed at once, and said in one line; what is cached is still used."""

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import datasets
import pytest
import yaml
from huggingface_hub import constants

from tpkd import hub
from tpkd.hub import hub_answers, hub_or_cache

MODEL = {"model": "hf:nobody/no-such-model"}


@pytest.fixture(autouse=True)
def asked_anew():
    hub_answers.cache_clear()
    yield
    hub_answers.cache_clear()


@pytest.fixture
def closed_port():
    """A port of this machine on which nothing answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


class NothingHere(BaseHTTPRequestHandler):
    asked = 0

    def do_HEAD(self):
        type(self).asked += 1
        self.send_error(404)

    def log_message(self, *_):
        pass


def test_any_answer_is_one_and_is_asked_for_once(monkeypatch):
    NothingHere.asked = 0
    with HTTPServer(("127.0.0.1", 0), NothingHere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        assert hub_answers()
        with hub_or_cache():
            assert not constants.HF_HUB_OFFLINE
        server.shutdown()
    assert NothingHere.asked == 1


def test_without_an_answer_the_libraries_are_offline_for_a_while(monkeypatch, closed_port):
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed_port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    assert not hub_answers()
    with suppress(KeyError), hub_or_cache():
        assert constants.is_offline_mode()
        assert datasets.config.HF_HUB_OFFLINE
        raise KeyError
    assert not constants.is_offline_mode()
    assert not datasets.config.HF_HUB_OFFLINE


def test_a_hub_that_takes_the_question_and_says_nothing_does_not_answer(monkeypatch):
    monkeypatch.setattr(hub, "TIMEOUT", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        assert not hub_answers()


def test_a_user_who_is_offline_is_not_asked_for_a_network(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "ENDPOINT", "no address at all")
    assert not hub_answers()
    with hub_or_cache():
        assert constants.HF_HUB_OFFLINE
    assert constants.HF_HUB_OFFLINE


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"name": "hf:owner/name"}}, "data: hf:owner/name: cannot be fetched: the hub does not answer"),
        ({"student": MODEL}, "student.model: hf:nobody/no-such-model: cannot be loaded: the hub does not answer"),
    ],
    ids=["data", "student"],
)
def test_a_command_ends_with_one_line_and_no_second_attempt(tmp_path, closed_port, changes, message):
    (tmp_path / "train.csv").write_text("text,label\n" + "a,x\nb,y\n" * 4)
    config = {"output": "run", "data": {"name": "csv:train.csv", "test": 0.5}, "student": {"model": "builtin:bert"}}
    config |= {"objective": "ce", "optimizer": {"name": "sgd", "learning_rate": 0.1}, "epochs": 1}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config | changes))
    environment = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": f"http://127.0.0.1:{closed_port}"}
    environment.pop("HF_HUB_OFFLINE", None)
    command = [sys.executable, "-m", "tpkd", "train", "run.yaml"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()  # the libraries announce every further attempt
    assert line.startswith(f"tpkd: run.yaml: {message}, and no copy is in its cache; ")
