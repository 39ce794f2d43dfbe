"""Data as people have them train on the first attempt, with the configurations of docs/your-data.md as they are."""

import re
from pathlib import Path

import datasets
import numpy as np
import pytest
from docs.hooks.blocks import find_blocks

from data.tables import write_csv
from data.test_folder import image_folder
from tpkd.cli.main import app
from tpkd.training.directory import read_result

PAGE = (Path(__file__).resolve().parents[2] / "docs/your-data.md").read_text()
BLOCKS = {block.file: block.text for block in find_blocks(PAGE) if block.file}
ROWS = [(f"{word} {n}", label) for n in range(6) for word, label in [("one", "a"), ("two", "b"), ("six", "c")]]


def columns(label):
    return datasets.Dataset.from_dict({"text": [text for text, _ in ROWS], label: [name for _, name in ROWS]})


def write_banking(folder):
    for split in ("train", "test"):
        (folder / "banking").mkdir(exist_ok=True)
        columns("category").to_csv(folder / f"banking/{split}.csv")


def write_photos(folder):
    names = [f"{part}/{name}/{n}.png" for part in ("train", "val") for name in "abc" for n in "12"]
    image_folder(folder / "photos", names[::2], side=40)
    image_folder(folder / "photos", names[1::2], side=50)


def write_questions(folder):
    columns("label").to_parquet(folder / "questions.parquet")


def write_saved(folder):
    datasets.DatasetDict(train=columns("intent"), test=columns("intent")).save_to_disk(folder / "saved")


def write_embeddings(folder):
    (folder / "embeddings").mkdir()
    for split in ("train", "test"):
        np.savez(folder / f"embeddings/{split}.npz", features=np.eye(18), labels=np.arange(18) % 3)


def write_pool(folder):
    (folder / "pool").mkdir()
    write_csv(folder / "pool/train.csv", [text for text, _ in ROWS], header="text")
    write_csv(folder / "pool/test.csv", [",".join(row) for row in ROWS])


WRITERS = (write_banking, write_photos, write_questions, write_saved, write_embeddings, write_pool)
CHAINS = {  # the runs that one needs come before it
    "photos": ("photos",),
    "questions": ("questions",),
    "saved": ("saved",),
    "embeddings": ("embeddings",),
    "banking, then what it teaches": ("banking", "distil", "pool"),
}


def train(name):
    """`tpkd train` on a configuration of the page, unchanged."""
    Path(f"{name}.yaml").write_text(BLOCKS[f"{name}.yaml"])
    return app(["train", f"{name}.yaml"], prog_name="tpkd", standalone_mode=False)


@pytest.mark.parametrize("names", CHAINS.values(), ids=CHAINS)
def test_the_first_attempt_ends_with_a_student(tmp_path, monkeypatch, names):
    monkeypatch.chdir(tmp_path)
    for write in WRITERS:
        write(tmp_path)
    for name in names:
        assert not train(name), "exit code"
    (result,) = [read_result(path.parent) for path in tmp_path.glob(f"runs/{names[0]}/**/result.json")]
    assert result.test_samples
    assert len(list(tmp_path.glob("runs/**/student.safetensors"))) == len(names)


def test_no_configuration_of_the_page_has_more_than_ten_lines():
    assert BLOCKS.keys() == {f"{name}.yaml" for chain in CHAINS.values() for name in chain}
    assert max(len(text.splitlines()) for text in BLOCKS.values()) <= 10


def test_a_data_set_in_python_takes_ten_lines():
    """Besides imports and networks; that the block runs is seen with all others of the page."""
    (example,) = [block.text for block in find_blocks(PAGE) if "student=student" in block.text]
    lines = [line for line in example.splitlines() if line and not re.match(r"\w+ = nn\.", line)]
    assert 1 < len(lines) <= 10
