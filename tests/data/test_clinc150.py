"""CLINC150 from its published JSON, and what is refused."""

import json

import pytest

from tpkd.data.loading import load_dataset
from tpkd.errors import InputError


def clinc(tmp_path, **changes):
    content = {
        "oos_train": [["who knows", "oos"]],
        "val": [["send money", "transfer"]],
        "train": [["pay my rent", "transfer"], ["play jazz", "music"]],
        "test": [["some blues", "music"], ["wire 5 dollars", "transfer"]],
        "oos_val": [],
        "oos_test": [["hm", "oos"]],
        **changes,
    }
    path = tmp_path / "clinc150" / "data_full.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    return tmp_path


def test_clinc150_merges_training_and_validation_and_leaves_out_of_scope_rows(tmp_path):
    root = clinc(tmp_path)
    train, test = (load_dataset("clinc150", split, root=root) for split in ("train", "test"))
    assert train.inputs == ("pay my rent", "play jazz", "send money")
    assert train.class_names == test.class_names == ("music", "transfer")
    assert train.labels.tolist() == [1, 0, 1]
    assert train.ids.tolist() == [0, 1, 2]
    assert test.inputs == ("some blues", "wire 5 dollars")
    assert test.labels.tolist() == [0, 1]
    assert test.ids.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"val": [["only text"]]}, r"data_full.json: val\[0\]: expected \[text, intent\], found \['only text'\]"),
        ({"test": None}, "data_full.json: expected a list of .* under 'test'"),
        ({"test": [["a", "new"]]}, "data_full.json: test: expected the intents of train, found 'new'"),
    ],
)
def test_damaged_clinc150_is_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        load_dataset("clinc150", "train", root=clinc(tmp_path, **changes))


def test_what_is_no_json_is_refused(tmp_path):
    (clinc(tmp_path) / "clinc150" / "data_full.json").write_text("{")
    with pytest.raises(InputError, match=r"data_full.json: damaged"):
        load_dataset("clinc150", "train", root=tmp_path)


def test_an_empty_question_of_clinc150_is_refused(tmp_path):
    (tmp_path / "clinc150").mkdir()
    content = {"train": [["a", "x"], [" ", "x"]], "val": [["a", "x"]], "test": [["a", "x"]]}
    (tmp_path / "clinc150" / "data_full.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"data_full.json: train\[1\]: expected a text, found none"):
        load_dataset("clinc150", "train", root=tmp_path)
