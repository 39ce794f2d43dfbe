"""Data as people have them train on the first attempt, with the lines of docs/reproducing.md."""

import re
from pathlib import Path

import datasets
import numpy as np
import pytest
import yaml

from data.test_folder import image_folder
from tpkd.config.loading import resolve_config
from tpkd.training.loop import train

PAGE = (Path(__file__).resolve().parents[2] / "docs/reproducing.md").read_text()
SECTION = PAGE.split("\n## Your own data and models\n")[1].split("\n## ")[0]
BERT = {"layers": 1, "hidden_size": 8, "heads": 1, "vocab_size": 50, "pooling": "mean"}
TEXT = {"student": {"model": "builtin:bert", "options": BERT}, "text": {"max_length": 8}}
IMAGES = {"student": {"model": "builtin:mlp", "options": {"input_size": 108}}}
ROWS = [(f"{word} {n}", label) for n in range(6) for word, label in [("one", "a"), ("two", "b"), ("six", "c")]]


def columns(label):
    return datasets.Dataset.from_dict({"text": [text for text, _ in ROWS], label: [name for _, name in ROWS]})


def write_csv(folder):
    for split in ("train", "test"):
        columns("category").to_csv(folder / f"banking/{split}.csv")


def write_photos(folder):
    image_folder(
        folder / "photos", [f"{part}/{name}/{n}.png" for part in ("train", "val") for name in "abc" for n in "12"]
    )


def write_parquet(folder):
    columns("label").to_parquet(folder / "questions.parquet")


def write_disk(folder):
    datasets.DatasetDict(train=columns("intent"), test=columns("intent")).save_to_disk(folder / "saved")


def write_vectors(folder):
    (folder / "embeddings").mkdir()
    for split in ("train", "test"):
        np.savez(folder / f"embeddings/{split}.npz", features=np.eye(18), labels=np.arange(18) % 3)


DOORS = {
    "csv:banking": (write_csv, TEXT),
    "folder:photos": (write_photos, IMAGES),
    "parquet:questions.parquet": (write_parquet, TEXT),
    "disk:saved": (write_disk, TEXT),
    "vector:embeddings": (write_vectors, {"student": {"model": "builtin:mlp"}}),
}


@pytest.mark.parametrize("name", DOORS)
def test_the_lines_of_the_page_train_on_the_first_attempt(tmp_path, monkeypatch, name):
    (block,) = [text for text in re.findall(r"```yaml\n(.*?)```", SECTION, re.S) if f'"{name}"' in text]
    assert len(block.splitlines()) <= 10
    write, model = DOORS[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "banking").mkdir()
    write(tmp_path)
    rest = {"objective": "ce", "optimizer": {"name": "sgd", "learning_rate": 0.1}, "epochs": 1, "device": "cpu"}
    data = {"data": yaml.safe_load(block)["data"]}
    result = train(resolve_config({"output": "run", **data, **model, **rest, "tensorboard": False}))
    assert 0 <= result.accuracy <= 1
    assert (tmp_path / "run/student.safetensors").exists()
