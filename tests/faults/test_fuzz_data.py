"""Random damage to data of every kind: samples, or one line that names the file; nothing else, and bounded memory.

A seed stands in the name of its test, as in test_fuzz.py.
"""

import json
import random

import datasets
import numpy as np
import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet
from safetensors.numpy import save_file

from cli.training_runs import run
from faults.test_fuzz import FULL, NASTY, damaged, survives
from tpkd.data.loading import load_dataset

SEEDS = range(100 if FULL else 3)
CASES = 15
TEXTS = [(f"{word} {number}", label) for number in range(8) for word, label in (("hello", "greet"), ("bye", "leave"))]
TABLE = pa.table({"text": [text for text, _ in TEXTS], "label": [label for _, label in TEXTS]})


def write_table(folder, separator, suffix):
    lines = ["text" + separator + "label", *(separator.join(row) for row in TEXTS)]
    (folder / f"a.{suffix}").write_text("\n".join(lines))


def write_arrow(folder):
    with pa.OSFile(str(folder / "a.arrow"), "wb") as sink, pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)


def write_images(folder):
    from data.test_folder import image_folder

    image_folder(folder / "a", ["train/cat/1.png", "train/dog/2.png"])


ARRAYS = {"features": np.eye(6, dtype=np.float32), "labels": np.arange(6) % 3}
KINDS = {
    "csv:a.csv": lambda folder: write_table(folder, ",", "csv"),
    "tsv:a.tsv": lambda folder: write_table(folder, "\t", "tsv"),
    "jsonl:a.jsonl": lambda folder: (folder / "a.jsonl").write_text(
        "\n".join(json.dumps({"text": text, "label": label}) for text, label in TEXTS)
    ),
    "parquet:a.parquet": lambda folder: parquet.write_table(TABLE, folder / "a.parquet"),
    "arrow:a.arrow": write_arrow,
    "disk:a": lambda folder: datasets.DatasetDict(train=datasets.Dataset(TABLE)).save_to_disk(folder / "a"),
    "vector:a.npz": lambda folder: np.savez(folder / "a.npz", **ARRAYS),
    "vector:a.safetensors": lambda folder: save_file(ARRAYS, folder / "a.safetensors"),
    "folder:a": write_images,
}


def read(name, folder):
    """Everything that a run looks at: labels, every input, and the fingerprint."""
    data = load_dataset(name, "train", root=folder)
    data.take(range(len(data)))
    assert len(data.fingerprint) == 64
    return data


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", KINDS)
def test_damage(tmp_path, record_property, name, seed):
    random_ = random.Random(4_000 + seed)
    KINDS[name](tmp_path)
    place = tmp_path / name.split(":")[1]
    files = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
    for _ in range(CASES):
        path = random_.choice(files)
        whole = path.read_bytes()
        path.write_bytes(damaged(whole, random_) if random_.random() < 0.8 else whole[: random_.randrange(len(whole))])
        survives(lambda: read(name, tmp_path), str(tmp_path))
        path.write_bytes(whole)
    assert survives(lambda: read(name, tmp_path), str(tmp_path))
    record_property("fault: damaged data files", CASES)


CELLS = [cell for cell in NASTY if not set(cell) & {'"', "\r", "\n"}]
HOSTILE = {
    "huge line": b"text,label\nhello,greet\n" + b"x" * (17 << 20),
    "huge field": b"text,label\nhello,greet\n" + b"x" * 200_000 + b",greet\n",
    "quotation mark": b'text,label\n"hello,greet\n' + b"bye,leave\n" * 50_000,
    "NUL": b"text,label\nhel\0lo,greet\n",
    "NUL label": b"text,label\nhello,gr\0eet\n",
    "NUL block": b"text,label\nhello,greet\n" + bytes(4096),
    "NULs alone": bytes(1 << 20),
    "Latin-1": "text,label\nhéllo,greet\n".encode("latin-1"),
    "UTF-16": "text,label\nhello,greet\n".encode("utf-16"),
    "UTF-16 without a mark": "text,label\nhello,greet\n".encode("utf-16-le"),
    "surrogates": b"text,label\n\xed\xa0\x80,greet\n",
    "columns without end": b"a," * (4 << 20) + b"text\n",
    "packed": b"\x1f\x8b\x08\0" + bytes(range(256)),
    "long label": b"text,label\nhello," + b"x" * 5000 + b"\n",
    "nothing": b"",
    "header alone": b"text,label\n",
}


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_tables(tmp_path, record_property, suffix, case):
    content = HOSTILE[case]
    if suffix == "tsv":
        comma, tab = (sign.encode("utf-16-le" if "UTF-16" in case else "ascii") for sign in ",\t")
        content = content.replace(comma, tab)
    (tmp_path / f"a.{suffix}").write_bytes(content)
    assert not survives(lambda: read(f"{suffix}:a.{suffix}", tmp_path), f"a.{suffix}")
    record_property("fault: hostile tables", 1)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_mark_of_utf_8_and_any_newlines_are_taken(tmp_path, newline):
    content = "\ufefftext,label\nhello,greet\r\nbye,leave\r" + "hey,greet" + newline
    (tmp_path / "a.csv").write_text(content, newline="")
    assert read("csv:a.csv", tmp_path).inputs == ("hello", "bye", "hey")


@pytest.mark.parametrize("value", [*CELLS, *range(3)], ids=lambda value: f"{value!a:.20}")
def test_hostile_values(tmp_path, record_property, value):
    """As text and as label of JSON, which can say everything."""
    for entry in ({"text": value, "label": "a"}, {"text": "a", "label": value}, {"text": "a", "label": {"a": value}}):
        (tmp_path / "a.jsonl").write_text(json.dumps(entry))
        survives(lambda: read("jsonl:a.jsonl", tmp_path), "a.jsonl")
    record_property("fault: hostile values", 3)


@pytest.mark.parametrize("name", KINDS)
def test_a_command_ends_with_one_line_and_code_2(tmp_path, monkeypatch, capsys, name):
    KINDS[name](tmp_path)
    place = tmp_path / name.split(":")[1]
    for path in [path for path in place.rglob("*") if path.is_file()] if place.is_dir() else [place]:
        path.write_bytes(path.read_bytes()[:20])
    rest = {"student": {"model": "builtin:mlp"}, "objective": "ce", "epochs": 1}
    config = {"output": "run", "data": {"name": name, "test": 0.5}, "optimizer": {"name": "sgd", "learning_rate": 0.1}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config | rest))
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()  # the bar of save_to_disk
    code, out, err = run(capsys, monkeypatch, "train", "run.yaml")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("tpkd: ")
