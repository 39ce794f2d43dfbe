"""Damaged and hostile files, and other ones, given to `tpkd cache import`: one line, exit 2, nothing written."""

import os
import pickle
import random
import zipfile

import numpy as np
import pytest
import torch
import yaml

from cli.training_runs import run
from importing.files import FORMATS, answers, importing_config, top_k_arrays, write


class Touch:
    """What a pickle runs when it is read."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    dataset, logits = answers(importing_config(tmp_path_factory.mktemp("hostile")))
    return dataset, logits[:, 0]


@pytest.fixture
def refused(capsys, monkeypatch, tmp_path):
    """The line with which an import is refused, without a trace of it on the disk."""
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(importing_config(tmp_path).model_dump(mode="json")))

    def attempt(path, *more):
        code, out, err = run(capsys, monkeypatch, "cache", "import", path, "--config", config, *more)
        assert (code, out) == (2, ""), err
        assert err.startswith("tpkd: ")
        assert err.count("\n") == 1
        assert err[:-1].isprintable()
        assert not (tmp_path / "imported").exists()
        return err

    return attempt


@pytest.mark.parametrize("kind", FORMATS)
def test_files_that_end_early_or_hold_something_else(case, tmp_path, refused, record_property, kind):
    _, logits = case
    path = write(tmp_path / f"logits.{kind}", logits)
    whole = path.read_bytes()
    damaged = [
        b"",
        whole[: len(whole) // 2],
        whole[:-1],
        b"\x00" * 64,
        b"GIF89a" + whole,
        random.Random(0).randbytes(300),
    ]
    if kind in ("csv", "tsv"):
        damaged.remove(whole[:-1])  # only the end of its last line is missing
    if kind == "npz":
        damaged.remove(b"GIF89a" + whole)  # an archive may begin with anything
    for content in damaged:
        path.write_bytes(content)
        assert path.name in refused(path)
    record_property("fault: damaged files of logits", len(damaged))


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_no_file(tmp_path, refused, kind):
    path = tmp_path / f"logits.{kind}"
    assert "cannot be read" in refused(path)
    path.mkdir()
    assert "found a directory" in refused(path)
    path.rmdir()
    os.mkfifo(path)
    assert "expected a regular file, found a FIFO" in refused(path)


def test_pickles_are_not_run(tmp_path, refused):
    trap = Touch(tmp_path / "ran")
    np.save(tmp_path / "a.npy", np.array([trap], object), allow_pickle=True)
    np.savez(tmp_path / "a.npz", logits=np.array([trap], object))
    torch.save({"logits": trap}, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(trap))
    for name in ("a.npy", "a.npz", "a.pt", "b.pt"):
        assert name in refused(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def test_an_archive_that_unpacks_without_end(tmp_path, refused):
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (60, 10), }"
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logits.npy", header.ljust(127) + b"\n" + bytes(50_000_000))
    assert "bomb.npz: expected 2528 bytes" in refused(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.zeros((60, 10)), "b": np.zeros((60, 10))}, "expected an array named 'logits' or a single array"),
        ({"logits": np.zeros((60, 10), "complex64")}, "expected real numbers"),
        ({"logits": np.full((60, 10), "x")}, "expected real numbers"),
        (
            {"logits": np.zeros((60, 10)), "log_probs": np.zeros((60, 3))},
            "expected either the logits of all classes or",
        ),
        ({"log_probs": np.zeros((60, 3)), "label_log_probs": np.zeros(60)}, "expected log_probs and indices"),
        ({"logits": np.zeros((60, 10)), "ids": np.zeros(60)}, "expected one integer id per example"),
        (
            {"logits": np.zeros((60, 10)), "ids": np.zeros(60, int)},
            "row 1: expected different ids, found '0' as in row 0",
        ),
        ({"logits": np.zeros((60, 10)), "ids": np.arange(7, 60)}, "expected 60 ids"),
        ({"logits": np.zeros((0, 10))}, "expected 60 rows"),
    ],
)
def test_other_keys_types_and_ids(tmp_path, refused, arrays, message):
    path = tmp_path / "logits.npz"
    np.savez(path, **arrays)
    assert message in refused(path)


def test_ids_that_are_damaged_or_hostile(case, tmp_path, refused):
    _, logits = case
    path = write(tmp_path / "logits.npy", logits)
    for name, content, message in (
        ("ids.txt", b"\xff\xfe\n" * 60, "ids.txt: damaged"),
        ("ids.json", b'["a"', "ids.json: damaged"),
        ("ids.json", b"{}", "expected a JSON list of strings"),
        ("ids.npy", b"\x93NUMPY", "ids.npy: damaged"),
        ("ids.txt", b"x\x1b[2J\n" * 60, "found 'x\\x1b[2J' as in row 0"),
        ("ids.txt", b"9" * 5000 + b"\n" + b"".join(b"%d\n" % row for row in range(59)), "expected an id of every"),
    ):
        (tmp_path / name).write_bytes(content)
        assert message in refused(path, "--ids", tmp_path / name)


@pytest.mark.parametrize("name", ["log_probs", "indices", "label_log_probs", "rest_log_probs"])
def test_truncated_files_with_one_array_of_another_kind(case, tmp_path, refused, name):
    dataset, logits = case
    arrays = top_k_arrays(logits, dataset.labels)
    path = tmp_path / "top.npz"
    for wrong in (arrays[name][:-1], arrays[name].astype(np.float32 if name == "indices" else np.int64)):
        np.savez(path, **(arrays | {name: wrong}))
        assert f"top.npz: {'indices' if name == 'log_probs' and len(wrong) < 60 else name}: expected" in refused(path)
