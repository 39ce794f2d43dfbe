"""Whole data sets in batches: labels are compared by name, and data of another kind are refused."""

import pytest
import torch
import yaml

from data.test_folder import image_folder
from student.runs import TEXTS, digits_run, table, tensors_of, text_run
from tpkd.data import load_dataset
from tpkd.errors import InputError
from tpkd.student.loading import load_student
from tpkd.student.prediction import LinesOfText, open_data, predict_batches, student_classes


def gathered(student, source, batch_size=4):
    batches = list(predict_batches(student, source, batch_size=batch_size))
    return torch.cat([batch.found.logits for batch in batches]), batches


def test_the_test_split_of_the_run_gives_the_logits_that_the_run_kept(tmp_path):
    run = text_run(tmp_path)
    student = load_student(run)
    name = yaml.safe_load((run / "config.yaml").read_text())["data"]["name"]
    logits, batches = gathered(student, open_data(student, name))
    kept = tensors_of(run / "test-logits.safetensors")
    torch.testing.assert_close(logits, kept["logits"], rtol=1e-5, atol=1e-6)
    assert torch.equal(torch.cat([batch.labels for batch in batches]), kept["labels"])
    assert torch.equal(torch.cat([batch.sample_ids for batch in batches]), kept["sample_ids"])
    right = torch.cat([batch.correct for batch in batches])
    assert torch.equal(right, kept["logits"].argmax(-1) == kept["labels"])


def test_the_limits_of_a_trial_do_not_limit_predictions(tmp_path):
    student = load_student(digits_run(tmp_path))
    assert len(open_data(student, "digits")) == len(load_dataset("digits", "test"))
    assert len(open_data(student, "digits", "train")) == len(load_dataset("digits", "train"))


def test_a_single_table_is_taken_whole_and_its_labels_by_name(tmp_path):
    """The table has two of the three classes, the last first: its class 0 is not the student's."""
    student = load_student(text_run(tmp_path))
    path = tmp_path / "more.csv"
    path.write_text("text,label\nis it sunny,weather\npay it,Pay\n")
    source = open_data(student, f"csv:{path}")
    (batch,) = predict_batches(student, source, batch_size=8)
    assert [student.class_names[label] for label in batch.labels.tolist()] == ["weather", "pay"]


def test_a_class_that_the_student_does_not_have_is_refused(tmp_path):
    student = load_student(text_run(tmp_path))
    path = tmp_path / "more.csv"
    path.write_text("text,label\nis it sunny,wether\n")
    with pytest.raises(InputError, match="class 'wether': expected one of the student's 3 classes; did you mean weath"):
        student_classes(student, open_data(student, f"csv:{path}"))


def test_lines_of_text_are_predicted_without_labels(tmp_path):
    student = load_student(text_run(tmp_path))
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([*TEXTS.values()] * 3) + "\n\n")
    logits, batches = gathered(student, open_data(student, str(path)), batch_size=4)
    assert [len(batch.found) for batch in batches] == [4, 4, 1]
    assert torch.cat([batch.sample_ids for batch in batches]).tolist() == list(range(9))
    torch.testing.assert_close(logits, student.predict([*TEXTS.values()] * 3).logits)
    assert batches[0].labels is batches[0].correct is None


def test_lines_are_read_as_they_are_needed(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("first\nsecond\n\nfourth\n")
    texts = LinesOfText(path).texts()
    assert [next(texts), next(texts)] == ["first", "second"]
    with pytest.raises(InputError, match="line 3: expected a text, found an empty line"):
        next(texts)


@pytest.mark.parametrize("content", ["", "\n", "\n\n"])
def test_a_file_without_a_text_is_refused(tmp_path, content):
    path = tmp_path / "texts.txt"
    path.write_text(content)
    with pytest.raises(InputError, match="expected one text per line, found none"):
        list(LinesOfText(path).texts())


@pytest.mark.parametrize(
    ("data", "split", "message"),
    [
        ("digts", None, "data set: expected one of digits.*did you mean digits.; or a file with one text per line"),
        ("csv:{table}", None, "expected image or vector data, as the run had, found text data"),
        ("{table}/train.csv", None, "expected image or vector data such as folder:PATH, found a file of texts"),
        ("csv:/no/such.csv", None, "/no/such.csv: expected a directory with train.csv and test.csv"),
    ],
)
def test_other_data_are_refused(tmp_path, data, split, message):
    student = load_student(digits_run(tmp_path))
    with pytest.raises(InputError, match=message):
        open_data(student, data.format(table=table(tmp_path / "table", "csv")), split)


def test_a_file_of_lines_has_no_split(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("a\n")
    with pytest.raises(InputError, match="has no split 'train'; leave out --split"):
        open_data(load_student(text_run(tmp_path)), str(path), "train")


def test_tables_and_folders_without_labels(tmp_path):
    run = text_run(tmp_path)
    (tmp_path / "new.csv").write_text("text,label\nplay a song,never seen\nis it sunny,\n")
    student = load_student(run)
    data = open_data(student, f"csv:{tmp_path / 'new.csv'}", unlabelled=True)
    (batch,) = predict_batches(student, data, batch_size=9)
    assert batch.labels is None
    assert torch.equal(batch.found.logits, student.predict(["play a song", "is it sunny"]).logits)
    for split in ("train", "test"):  # no part needs labels then
        (tmp_path / f"{split}.csv").write_text("text\nplay a song\n")
    assert len(open_data(student, f"csv:{tmp_path}", "test", unlabelled=True)) == 1
    digits = load_student(digits_run(tmp_path / "images"))
    image_folder(tmp_path / "photos", ["1.png", "deep/2.png"])
    assert not open_data(digits, f"folder:{tmp_path / 'photos'}", unlabelled=True).labelled
    assert not open_data(digits, "digits", unlabelled=True).labelled
