"""Only regular files are read, through links or not; FIFOs, devices, sockets and directories are refused at once."""

import os
import socket
import subprocess

import pytest

from tpkd.cache import cache_info
from tpkd.data import load_dataset
from tpkd.files import InputError, open_array, read_lines, sha256

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


@pytest.mark.xfail(strict=True, reason="FIFOs are waited for")
@pytest.mark.parametrize("name", READERS)
def test_a_fifo_is_refused_without_waiting_for_its_writer(tmp_path, make_fifo, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    make_fifo(path)
    with pytest.raises(InputError, match="expected a regular file, found a FIFO"):
        READERS[name](path)


@pytest.mark.xfail(strict=True, reason="devices are read")
@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.safetensors", "x.csv", "cifar100.npz", "train/cat/1.png"])
def test_a_link_to_a_device_is_refused(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/null")  # what is refused of an empty device is refused of an endless one
    with pytest.raises(InputError, match="expected a regular file, found a device"):
        READERS[name](path)
