"""Texts are read line by line, and outputs appear whole or not at all."""

import hashlib
import os

import pytest

from tpkd.errors import InputError
from tpkd.files import publish, read_lines, sha256, write_file
from tpkd.termination import TerminatedError


def test_lines_of_text(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffKätzchen\r\n\r\ndog".encode())
    assert list(read_lines(tmp_path / "a.txt")) == ["Kätzchen", "", "dog"]
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InputError, match=r"b\.txt: damaged"):
        list(read_lines(tmp_path / "b.txt"))


def test_publish_replaces_as_a_whole_with_ordinary_permissions(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("old")
    with publish(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "plain"]


def test_publish_leaves_nothing_behind_when_it_fails(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("old")

    def interrupted():
        with publish(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_a_signal_right_after_the_rename_is_not_taken_for_a_disk_that_refuses(tmp_path, monkeypatch):
    """Python runs a signal's handler when the system call is over: the file is then no longer under its first name."""
    rename = os.replace

    def interrupted(*paths):
        rename(*paths)
        raise TerminatedError

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(TerminatedError):
        write_file(tmp_path / "out.json", "new")
    assert (tmp_path / "out.json").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_sha256(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 300_000)
    assert sha256(path) == hashlib.sha256(b"x" * 300_000).hexdigest()
