"""Only regular files are read, through links or not; FIFOs, devices, sockets and directories are refused at once."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tpkd import files
from tpkd.arrays import open_array
from tpkd.data.loading import load_dataset
from tpkd.errors import InputError
from tpkd.files import file_size, open_regular, read_bounded, read_lines, read_text, sha256
from tpkd.teacher.cache.verify import cache_info

READERS = {
    "x.npy": open_array,
    "x.npz": open_array,
    "x.safetensors": open_array,
    "names.txt": lambda path: list(read_lines(path)),
    "hashed": sha256,
    "manifest.json": lambda path: cache_info(path.parent),
    "x.csv": lambda path: load_dataset(f"csv:{path}", "train"),
    "x.jsonl": lambda path: load_dataset(f"jsonl:{path}", "train"),
    "clinc150/data_full.json": lambda path: load_dataset("clinc150", "train", root=path.parents[1]),
    "cifar-100-python/train": lambda path: load_dataset("cifar100", "train", root=path.parents[1]),
    "cifar100.npz": lambda path: load_dataset("cifar100", "train", root=path.parent),
    "train/cat/1.png": lambda path: load_dataset(f"folder:{path.parents[2]}", "train").take([0]),
}


@pytest.fixture
def make_fifo():
    """A FIFO that a reader which waits for a writer gets one for after some seconds, so that its test ends."""
    writers = []

    def make(path):
        os.mkfifo(path)
        writers.append(subprocess.Popen(["sh", "-c", 'sleep 5; exec 3<>"$0"; sleep 1', path]))

    yield make
    for writer in writers:
        writer.kill()
        writer.wait()


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize("name", READERS)
def test_a_fifo_is_refused_without_waiting_for_its_writer(tmp_path, make_fifo, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    make_fifo(path)
    with pytest.raises(InputError, match="expected a regular file, found a FIFO"):
        READERS[name](path)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.safetensors", "x.csv", "cifar100.npz", "train/cat/1.png"])
def test_a_link_to_a_device_is_refused(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/null")  # what is refused of an empty device is refused of an endless one
    with pytest.raises(InputError, match="expected a regular file, found a device"):
        READERS[name](path)


@pytest.mark.parametrize("read", [open_regular, file_size, read_bounded, read_text, sha256])
def test_what_is_no_regular_file_is_refused_by_its_kind(tmp_path, read):
    (tmp_path / "folder").mkdir()
    make_socket(tmp_path / "socket")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name, kind in (("folder", "a directory"), ("socket", "a socket"), ("zero", "a device")):
        with pytest.raises(InputError, match=f"^{tmp_path / name}: expected a regular file, found {kind}$"):
            read(tmp_path / name)
    with pytest.raises(InputError, match=r"missing: cannot be read: No such file or directory$"):
        read(tmp_path / "missing")
    with pytest.raises(InputError, match=r"^'a\\x00b': expected a path"):
        read("a\0b")


def test_links_are_followed(tmp_path):
    (tmp_path / "blob").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("blob")
    (tmp_path / "far").symlink_to("link")
    assert read_bounded(tmp_path / "far") == b"abc"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="loop: cannot be read: "):
        read_bounded(tmp_path / "loop")


def test_a_read_is_bounded_by_what_comes_and_not_by_the_size_alone(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"x" * 10)
    assert read_bounded(path, 10) == b"x" * 10
    with pytest.raises(InputError, match="text: expected at most 9 bytes, found more"):
        read_bounded(path, 9)
    with path.open("ab") as file:
        file.truncate(1 << 40)  # sparse: a terabyte that takes no room
    with pytest.raises(InputError, match="expected at most 100 bytes, found more"):
        read_bounded(path, 100)
    grown = Path("/proc/self/maps")  # says that it has no bytes, and has some
    if grown.exists():
        with pytest.raises(InputError, match="expected at most 100 bytes, found more"):
            read_bounded(grown, 100)


def test_a_line_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE_LENGTH", 10)
    (tmp_path / "names").write_text("short\n0123456789\n" + "x" * 11)
    lines = read_lines(tmp_path / "names")
    assert next(lines) == "short"
    with pytest.raises(InputError, match="names: line 3: expected at most 10 characters"):
        list(lines)


def test_line_ends_are_kept_for_csv(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"a\r\nb\nc")
    assert list(read_lines(tmp_path / "a.csv", keep_ends=True)) == ["a\r\n", "b\n", "c"]
