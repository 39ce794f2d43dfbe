"""What is wrong in a user's folders and tables is refused by file and row; nothing of it becomes a class."""

import json

import numpy as np
import pytest
from PIL import Image

from tpkd.data.dataset import Dataset
from tpkd.data.loading import load_dataset
from tpkd.errors import InputError


def write_csv(path, rows, header="text,label"):
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


def image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path)


# Numbers


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_whole_numbers_are_sorted_as_numbers(tmp_path, suffix):
    labels = [11, 2, 10, 0, 1, 11]
    if suffix == "csv":
        write_csv(tmp_path / "train.csv", [f"x,{label}" for label in labels])
    else:
        lines = [json.dumps({"text": "x", "label": label}) for label in labels]
        (tmp_path / "train.jsonl").write_text("\n".join(lines))
    data = load_dataset(f"{suffix}:{tmp_path}", "train")
    assert data.class_names == ("0", "1", "2", "10", "11")
    assert data.labels.tolist() == [4, 2, 3, 0, 1, 4]


def test_numbers_below_zero_and_ratings_are_numbers_too(tmp_path):
    write_csv(tmp_path / "train.csv", ["x,0.5", "x,10.0", "x,-1", "x,2.5"])
    assert load_dataset(f"csv:{tmp_path}", "train").class_names == ("-1", "0.5", "2.5", "10.0")


@pytest.mark.parametrize(("first", "second"), [("1", "01"), ("1", "1.0"), ("0", "-0")])
def test_one_number_written_in_two_ways_is_refused(tmp_path, first, second):
    write_csv(tmp_path / "train.csv", [f"x,{first}", "x,7", f"x,{second}"])
    with pytest.raises(InputError, match=rf"train.csv: line 4: label: '{second}' and '{first}' \(line 2\) are"):
        load_dataset(f"csv:{tmp_path}", "train")


def test_folders_named_by_numbers_are_sorted_as_numbers(tmp_path):
    for name in ("10", "2", "0"):
        image(tmp_path / "train" / name / "1.png")
    assert load_dataset(f"folder:{tmp_path}", "train").class_names == ("0", "2", "10")


# Rows of tables


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (["x,a", "hello, you,a"], r"line 3: expected 2 fields as in line 1, found 3.*quotation marks"),
        (["x,a", ",a"], r"line 3: text: expected a text, found none"),
        (["x,a", "   ,a"], r"line 3: text: expected a text, found none"),
        (["x,a", "\ufeff\u200b,a"], r"line 3: text: expected a text, found none"),
        (["x,a", "y, a"], r"line 3: label: expected no white space around it, found ' a'"),
        (["x,a", "y,a "], r"line 3: label: expected no white space around it, found 'a '"),
        (["x,a", "y,\u200ba"], r"line 3: label: expected no white space around it"),
        (["x,a", 'y,"a\tb"'], r"line 3: label: expected a name without control characters, found 'a\\tb'"),
        (["x,a", "y,  "], r"line 3: label: expected a name or a whole number"),
        (["x,greet", "y,leave", "z,Greet"], r"line 4: label: 'Greet' and 'greet' \(line 2\) differ in"),
        (["x,caf\u00e9", "z,cafe\u0301"], r"line 3: label: .* differ in"),
        (["x,a", "text,label", "y,a"], r"line 3: expected a row, found the column names again"),
    ],
)
def test_rows_that_are_not_what_they_seem_are_refused(tmp_path, rows, problem):
    write_csv(tmp_path / "train.csv", rows)
    with pytest.raises(InputError, match=f"train.csv: {problem}"):
        load_dataset(f"csv:{tmp_path}", "train")


def test_a_row_with_too_few_fields_is_refused(tmp_path):
    write_csv(tmp_path / "train.csv", ["x,a,note", "y,a"], header="text,label,note")
    with pytest.raises(InputError, match="line 3: expected 3 fields as in line 1, found 2"):
        load_dataset(f"csv:{tmp_path}", "train")


@pytest.mark.parametrize("header", ["text,label,label", "text,text,label", "text,label,text"])
def test_a_column_that_is_there_twice_is_refused(tmp_path, header):
    write_csv(tmp_path / "train.csv", ["x,y,a"], header=header)
    with pytest.raises(InputError, match=r"train.csv: line 1: duplicate column '(text|label)'"):
        load_dataset(f"csv:{tmp_path}", "train")


def test_a_key_that_is_there_twice_is_refused(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "x", "label": "a", "label": "b"}\n')
    with pytest.raises(InputError, match=r"train.jsonl: line 1: duplicate key 'label'"):
        load_dataset(f"jsonl:{tmp_path}", "train")


@pytest.mark.parametrize(("text", "label"), [("", "a"), (" \n", "a"), ("x", " a")])
def test_json_lines_are_held_to_the_same_rules(tmp_path, text, label):
    (tmp_path / "train.jsonl").write_text(json.dumps({"text": text, "label": label}))
    with pytest.raises(
        InputError, match=r"train.jsonl: line 1: (text: expected a text|label: expected no white space)"
    ):
        load_dataset(f"jsonl:{tmp_path}", "train")


def test_an_empty_question_of_clinc150_is_refused(tmp_path):
    (tmp_path / "clinc150").mkdir()
    content = {"train": [["a", "x"], [" ", "x"]], "val": [["a", "x"]], "test": [["a", "x"]]}
    (tmp_path / "clinc150" / "data_full.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"data_full.json: train\[1\]: expected a text, found none"):
        load_dataset("clinc150", "train", root=tmp_path)


def test_the_line_of_a_label_that_training_never_saw_is_named(tmp_path):
    write_csv(tmp_path / "train.csv", ["x,greet", "y,leave"])
    write_csv(tmp_path / "test.csv", ["x,greet", "y,leafe"])
    with pytest.raises(InputError, match=r"test.csv: line 3: .*found 'leafe'; did you mean leave\?"):
        load_dataset(f"csv:{tmp_path}", "test")


# A class with one sample


def test_a_class_with_one_sample_among_large_ones_is_named(tmp_path):
    rows = [f"word {number},{label},note" for number in range(6) for label in ("greet", "leave")]
    write_csv(tmp_path / "train.csv", [*rows, "hello,you,greet"], header="text,label,note")
    problem = r"train.csv: line 14: label: 'you' occurs once.*data.allow_singletons: true"
    with pytest.raises(InputError, match=problem):
        load_dataset(f"csv:{tmp_path}", "train")
    write_csv(tmp_path / "test.csv", ["hello,greet,note"], header="text,label,note")
    with pytest.raises(InputError, match=problem):
        load_dataset(f"csv:{tmp_path}", "test")
    accepted = load_dataset(f"csv:{tmp_path}", "train", allow_singletons=True)
    assert accepted.class_names == ("greet", "leave", "you")


def test_small_classes_among_small_ones_are_accepted(tmp_path):
    write_csv(tmp_path / "train.csv", ["x,a", "y,a", "z,b", "u,c", "v,c", "w,c"])
    # The second file tells that the rule is there at all.
    write_csv(tmp_path / "test.csv", [f"x{number},a" for number in range(9)] + ["y,b"])
    assert load_dataset(f"csv:{tmp_path}", "train").class_names == ("a", "b", "c")
    assert load_dataset(f"csv:{tmp_path}", "test").num_classes == 3
    with pytest.raises(InputError, match="line 11: label: 'b' occurs once"):
        load_dataset(f"csv:{tmp_path / 'test.csv'}", "train")


# Folders


def test_hidden_and_empty_folders_are_no_classes(tmp_path):
    for split in ("train", "test"):
        for name in ("cat/1.png", "dog/1.png", ".ipynb_checkpoints/1-checkpoint.png", ".git/x.png", "__MACOSX/c/1.png"):
            image(tmp_path / split / name)
        (tmp_path / split / "empty" / "deep").mkdir(parents=True)
        (tmp_path / split / "forgotten").mkdir()
        (tmp_path / split / "forgotten" / ".DS_Store").write_bytes(b"x")
    train, test = (load_dataset(f"folder:{tmp_path}", split) for split in ("train", "test"))
    assert train.class_names == test.class_names == ("cat", "dog")
    assert len(train) == len(test) == 2


def test_hidden_files_in_a_class_are_no_samples(tmp_path):
    for name in ("cat/1.png", "cat/._1.png", "cat/.ipynb_checkpoints/1.png", "cat/deep/__MACOSX/1.png", "dog/1.png"):
        image(tmp_path / "train" / name)
    assert load_dataset(f"folder:{tmp_path}", "train").inputs.paths == ("train/cat/1.png", "train/dog/1.png")


@pytest.mark.parametrize(
    ("train", "test", "problem"),
    [
        (["a/1.png", "b/1.png"], ["a/1.png"], r"test: expected the classes of .*train, found no folder 'b'"),
        (["a/1.png", "b/1.png", "c/1.png"], ["a/1.png"], r"test: .* found no folder 'b' and 1 more"),
        (["a/1.png"], ["a/1.png", "b/1.png"], r"test/b: expected the classes of .*train, found another one"),
    ],
)
def test_train_and_test_folders_of_different_classes_are_named(tmp_path, train, test, problem):
    for split, names in (("train", train), ("test", test)):
        for name in names:
            image(tmp_path / split / name)
    if problem.startswith("test/b"):
        (tmp_path / "train" / "b").mkdir()  # empty, so it is no class, and the test part has one too many
    with pytest.raises(InputError, match=problem):
        load_dataset(f"folder:{tmp_path}", "test")


def test_an_empty_test_folder_says_that_a_class_has_no_test_image(tmp_path):
    for name in ("train/a/1.png", "train/b/1.png", "test/a/1.png"):
        image(tmp_path / name)
    with pytest.raises(InputError, match="add an empty folder for a class without test images"):
        load_dataset(f"folder:{tmp_path}", "test")
    (tmp_path / "test" / "b").mkdir()
    assert load_dataset(f"folder:{tmp_path}", "test").class_names == ("a", "b")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("train/stray.png", r"train/stray.png: expected images in one folder per class"),
        ("train/c/1.heic", r"train/c/1.heic: expected .*\.png.*; convert it"),
        ("train/a/2.avif", r"train/a/2.avif: expected .*\.png.*; convert it"),
        ("train/c/notes.txt", r"train/c: expected images \(.*\), found none, but other files: notes.txt"),
        ("train/Ab/x.png", r"train: class folders 'Ab' and 'ab' differ in"),
    ],
)
def test_files_that_would_be_left_out_are_named(tmp_path, name, problem):
    for each in ("train/a/1.png", "train/ab/1.png"):
        image(tmp_path / each)
    path = tmp_path / name
    if path.suffix == ".png":
        image(path)
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    with pytest.raises(InputError, match=problem):
        load_dataset(f"folder:{tmp_path}", "train")


@pytest.mark.parametrize("names", [("a", "b", "a"), ("a", "", "b")])
def test_class_names_are_distinct_and_not_empty(names):
    with pytest.raises(InputError, match=r"toy \(train\): class names: expected 3 different names, found"):
        Dataset("toy", "train", "text", ("x",), np.array([0]), np.array([0]), names)
