"""Where training, test and validation part are found."""

import pytest

from data.tables import write_csv
from data.test_folder import image_folder
from tpkd.data.loading import load_dataset
from tpkd.data.parts import find_part
from tpkd.errors import InputError


@pytest.mark.parametrize("name", ["val", "valid", "validation", "dev"])
def test_without_a_test_part_the_validation_part_is_it_and_says_so(name):
    part = find_part("x", "test", ["train", name])
    assert part.name == name
    assert f"no part 'test', so '{name}' is the test part" in part.note
    problem = f"expected a test part and one of .*found ({name}, train|train, {name}); data.validation: 0.1 holds out"
    with pytest.raises(InputError, match=problem):
        find_part("x", "validation", ["train", name])
    assert find_part("x", "test", ["train", "test", name]) == ("test", None)
    assert find_part("x", "validation", ["train", "test", name]) == (name, None)


def test_two_validation_parts_are_refused():
    with pytest.raises(InputError, match=r"expected one validation part, found 'val' and 'valid'"):
        find_part("x", "test", ["train", "val", "valid"])


def test_image_folders_with_val(tmp_path):
    image_folder(tmp_path, ["train/a/1.png", "train/b/1.png", "val/a/2.png", "val/b/2.png"])
    data = load_dataset(f"folder:{tmp_path}", "test")
    assert data.inputs.paths == ("val/a/2.png", "val/b/2.png")
    assert data.notes == (f"{tmp_path}: no part 'test', so 'val' is the test part",)
    image_folder(tmp_path, ["test/a/3.png", "test/b/3.png"])
    test, validation = (load_dataset(f"folder:{tmp_path}", split) for split in ("test", "validation"))
    assert test.inputs.paths == ("test/a/3.png", "test/b/3.png")
    assert test.notes == ()
    assert validation.inputs.paths == ("val/a/2.png", "val/b/2.png")


def test_named_files_are_the_parts(tmp_path):
    write_csv(tmp_path / "one.csv", ["hello,greet", "bye,leave"])
    write_csv(tmp_path / "two.csv", ["hey,greet"])
    splits = {"train": "one.csv", "test": "two.csv"}
    test = load_dataset(f"csv:{tmp_path}", "test", splits=splits)
    assert (test.inputs, test.ids.tolist(), test.class_names) == (("hey",), [2], ("greet", "leave"))
    with pytest.raises(InputError, match=r"data.splits: expected validation, found train, test; data.validation: 0.1"):
        load_dataset(f"csv:{tmp_path}", "validation", splits=splits)
    with pytest.raises(InputError, match=r"one.csv: expected a folder before data.splits, found a file"):
        load_dataset(f"csv:{tmp_path}/one.csv", "train", splits=splits)
    with pytest.raises(InputError, match=r"digits: expected no data.splits, found train, test"):
        load_dataset("digits", "train", splits=splits)


def test_all_parts_of_a_table_have_ids_of_their_own(tmp_path):
    for name in ("train", "test", "val"):
        write_csv(tmp_path / f"{name}.csv", ["hello,greet", "bye,leave"])
    ids = [load_dataset(f"csv:{tmp_path}", split).ids.tolist() for split in ("train", "test", "validation")]
    assert len({sample for part in ids for sample in part}) == 6


def test_published_sets_have_no_validation_part():
    with pytest.raises(InputError, match=r"digits: expected a validation part, found .*; data.validation: 0.1"):
        load_dataset("digits", "validation")


def test_files_with_other_names_are_refused_with_the_key_that_names_them(tmp_path):
    write_csv(tmp_path / "bank_train.csv", ["hello,greet", "bye,leave"])
    problem = r"expected train\.csv, found bank_train\.csv; name the files with data\.splits, such as \{train: bank_tr"
    with pytest.raises(InputError, match=problem):
        load_dataset(f"csv:{tmp_path}", "train")
    write_csv(tmp_path / "bank_test.csv", ["hey,greet"])
    with pytest.raises(InputError, match=r"found bank_test\.csv, bank_train\.csv; .* such as \{train: .*, test: .*\}"):
        load_dataset(f"csv:{tmp_path}", "train")
    write_csv(tmp_path / "train.csv", ["hello,greet", "bye,leave"])
    assert len(load_dataset(f"csv:{tmp_path}", "train")) == 2
