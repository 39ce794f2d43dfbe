"""The same predictions in every format, batch by batch, and never over a file that exists."""

import csv
import json
import sys

import numpy as np
import pyarrow.parquet
import pytest
import torch

from tpkd.errors import InputError
from tpkd.student.loading import Predictions
from tpkd.student.outputs import open_output
from tpkd.student.prediction import PredictedBatch

NAMES = ("cat, big", 'a "dog"', "crème")


def batch(start, rows, labelled=True):
    logits = torch.randn(rows, 3, generator=torch.Generator().manual_seed(start)) * 9
    first, second = logits.topk(2).values.unbind(-1)
    names = tuple(NAMES[index] for index in logits.argmax(-1).tolist())
    found = Predictions(names, logits.argmax(-1), logits.softmax(-1), first - second, logits)
    return PredictedBatch(torch.arange(start, start + rows), found, torch.arange(rows) % 3 if labelled else None)


BATCHES = [batch(0, 5), batch(5, 5), batch(10, 2)]


def written(path, batches=BATCHES):
    with open_output(path, NAMES, labelled=batches[0].labels is not None) as add:
        for each in batches:
            add(each)
    return path


def joined(read):
    return torch.cat([read(each) for each in BATCHES]).numpy()


def test_csv_holds_every_number_exactly(tmp_path):
    with open(written(tmp_path / "found.csv"), newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["sample_id"]) for row in rows] == list(range(12))
    assert [row["prediction"] for row in rows] == [name for each in BATCHES for name in each.found.labels]
    assert [row["label"] for row in rows] == [NAMES[label] for each in BATCHES for label in each.labels.tolist()]
    assert [row["correct"] == "yes" for row in rows] == joined(lambda each: each.correct).tolist()
    assert np.array_equal(np.float32([row["margin"] for row in rows]), joined(lambda each: each.found.margins))
    found = np.float32([[row[f"probability {name}"] for name in NAMES] for row in rows])
    assert np.array_equal(found, joined(lambda each: each.found.probabilities))


def test_npz_opens_without_pickle_and_holds_every_number(tmp_path):
    with np.load(written(tmp_path / "found.npz"), allow_pickle=False) as arrays:
        assert tuple(arrays["class_names"]) == NAMES
        assert np.array_equal(arrays["sample_ids"], np.arange(12))
        assert np.array_equal(arrays["probabilities"], joined(lambda each: each.found.probabilities))
        assert np.array_equal(arrays["predictions"], joined(lambda each: each.found.indices))
        assert np.array_equal(arrays["margins"], joined(lambda each: each.found.margins))
        assert np.array_equal(arrays["labels"], joined(lambda each: each.labels))
        assert np.array_equal(arrays["correct"], joined(lambda each: each.correct))


def test_parquet_names_classes_and_holds_every_number(tmp_path):
    table = pyarrow.parquet.read_table(written(tmp_path / "found.parquet"))
    assert json.loads(table.schema.metadata[b"class_names"]) == list(NAMES)
    rows = table.to_pydict()
    assert rows["prediction"] == [name for each in BATCHES for name in each.found.labels]
    assert rows["label"] == [NAMES[label] for each in BATCHES for label in each.labels.tolist()]
    assert rows["correct"] == joined(lambda each: each.correct).tolist()
    assert np.array_equal(np.float32(rows["probabilities"]), joined(lambda each: each.found.probabilities))
    assert np.array_equal(np.float32(rows["margin"]), joined(lambda each: each.found.margins))


@pytest.mark.parametrize("suffix", ["csv", "npz", "parquet"])
def test_without_labels_nothing_is_called_correct(tmp_path, suffix):
    path = written(tmp_path / f"found.{suffix}", [batch(0, 3, labelled=False)])
    if suffix == "csv":
        columns = path.read_text().partition("\r\n")[0]
    elif suffix == "npz":
        columns = list(np.load(path))
    else:
        columns = pyarrow.parquet.read_table(path).column_names
    assert "correct" not in columns
    assert "label" not in [str(name) for name in columns]


@pytest.mark.parametrize("suffix", ["csv", "npz", "parquet"])
def test_an_error_on_the_way_leaves_nothing_behind(tmp_path, suffix):
    def batches():
        yield BATCHES[0]
        raise RuntimeError("stop")

    with (
        pytest.raises(RuntimeError, match="stop"),
        open_output(tmp_path / f"x.{suffix}", NAMES, labelled=True) as add,
    ):
        list(map(add, batches()))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_not_touched(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("mine")
    with pytest.raises(InputError, match="expected a new file, found one that exists"):
        written(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "x.parquett",
            r"expected a file that ends in \.csv, \.npz, \.parquet, found '\.parquett'; did you mean \.parq",
        ),
        ("no/x.csv", "expected a file in an existing directory"),
    ],
)
def test_a_file_that_cannot_be_is_refused_before_any_work(tmp_path, name, message):
    with pytest.raises(InputError, match=message):
        written(tmp_path / name)


def test_parquet_without_its_library_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"is not installed: pip install 'tpkd\[data\]'"):
        written(tmp_path / "x.parquet")
