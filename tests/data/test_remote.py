"""Data in an object store, read as data of this machine."""

import pytest
import yaml

from cli.training_runs import run
from object_store import BUCKET, object_store
from tpkd.data import load_dataset
from tpkd.errors import InputError

ROWS = "text,label\nhello there,greet\ngood bye,leave\nhi,greet\nso long,leave\n"


@pytest.fixture
def store(monkeypatch, tmp_path):
    with object_store(monkeypatch, tmp_path / "copies") as client:
        for name in ("train", "test"):
            client.put_object(Bucket=BUCKET, Key=f"set/{name}.csv", Body=ROWS.encode())
        yield client


def test_a_folder_of_files_and_a_file(store, tmp_path):
    (tmp_path / "train.csv").write_text(ROWS)
    there, here = load_dataset("csv:s3://bucket/set", "train"), load_dataset(f"csv:{tmp_path}", "train")
    assert (there.inputs, there.class_names, there.fingerprint) == (here.inputs, here.class_names, here.fingerprint)
    assert load_dataset("csv:s3://bucket/set/train.csv", "train").fingerprint == here.fingerprint


def test_a_missing_object(store):
    with pytest.raises(InputError, match=r"s3://bucket/none: cannot be read: no such file in the store"):
        load_dataset("csv:s3://bucket/none", "train")


def test_an_address_in_a_configuration_that_leads_nowhere(store, tmp_path, capsys, monkeypatch):
    config = {
        "output": str(tmp_path / "run"),
        "data": {"name": "csv:s3://bucket/none"},
        "student": {"model": "builtin:bert", "options": {"layers": 1, "width": 8}},
        "objective": "ce",
        "optimizer": {"name": "sgd", "learning_rate": 0.1},
        "epochs": 1,
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(config))
    code, _, err = run(capsys, monkeypatch, "train", path)
    assert code == 2
    assert err.count("\n") == 1
    assert "data: s3://bucket/none: cannot be read: no such file in the store" in err
