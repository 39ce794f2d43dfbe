"""Labels in every form give the diagnosis of plain class numbers, and what could be mistaken is refused."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from diagnosis.files_of import write_files
from diagnosis.truncated_files import write_cut
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.labels import LabelCheck
from tpkd.diagnosis.run import diagnose_files
from tpkd.errors import InputError

NAMES = ("cat", "Dog", "white crane", "été", "sea, deep", "6")


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path)


def diagnose(files, labels=None, **options):
    inputs = open_inputs([files.student], options.pop("teacher", files.teacher), labels or files.labels, **options)
    return diagnose_files(inputs, block_elements=6 * 50)


def write_labels(path, names):
    if path.suffix == ".npy":
        np.save(path, np.array(names))
    elif path.suffix == ".npz":
        np.savez(path, labels=np.array(names), other=np.zeros(3))
    elif path.suffix == ".parquet":
        parquet.write_table(pa.table({"text": ["hi"] * len(names), "label": names}), path, row_group_size=37)
    elif path.suffix == ".txt":
        path.write_text("".join(f"{name}\n" for name in names))
    else:
        path.write_text("text,label\n" + "".join(f'hi,"{name}"\n' for name in names))
    return path


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet", ".txt", ".csv"])
@pytest.mark.parametrize("change", [str, str.upper, lambda name: f" {name} "])
def test_names_are_the_classes_they_name(files, tmp_path, suffix, change):
    path = write_labels(tmp_path / f"named{suffix}", [change(NAMES[label]) for label in files.y])
    found, expected = diagnose(files, path, class_names=NAMES), diagnose(files, class_names=NAMES)
    assert replace(found, labels=expected.labels) == expected


def test_names_that_the_logits_carry_are_enough(files, tmp_path):
    table = {name: files.zt[:, place] for place, name in enumerate(NAMES)}
    parquet.write_table(pa.table(table), tmp_path / "teacher.parquet")
    path = write_labels(tmp_path / "labels.csv", [NAMES[label] for label in files.y])
    found = diagnose(files, path, teacher=tmp_path / "teacher.parquet")
    assert found.students == diagnose(files, class_names=NAMES).students
    assert found.class_names == NAMES


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".txt", ".csv"])
@pytest.mark.parametrize("named", [True, False])
def test_numbers_written_as_text_are_numbers(files, tmp_path, suffix, named):
    path = write_labels(tmp_path / f"numbers{suffix}", [str(label) for label in files.y])
    names = {"class_names": ["a", "b", "c", "d", "e", "f"]} if named else {}
    assert diagnose(files, path, **names).students == diagnose(files, **names).students


@pytest.mark.parametrize(
    ("names", "spoilt", "message"),
    [
        (NAMES, "whit crane", "row 31: expected a class of class names, found 'whit crane'; did you mean white crane?"),
        (NAMES, "", "row 31: expected a class of class names, found ''"),
        (NAMES, "x" * 500, "row 31: expected a class of class names, found 'xxx"),
        (("a", "a", "b", "c", "d", "e"), "a", "row 31: 'a' is the name of several classes of class names; give the"),
        (None, "cat", "expected a class number, found 'cat'; for labels by name, give the names of the classes"),
    ],
)
def test_an_unknown_name_gets_the_closest_one_and_its_row(files, tmp_path, names, spoilt, message):
    labels = ["b" if names and names != NAMES else "cat" if names else "1"] * 120
    labels[31] = spoilt
    with pytest.raises(InputError) as caught:
        diagnose(files, write_labels(tmp_path / "labels.csv", labels), class_names=names)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_name_of_a_column_that_is_taken_for_a_label_is_explained(files, tmp_path):
    (tmp_path / "labels.csv").write_text("kind\n" + "cat\n" * 119)
    with pytest.raises(InputError, match=r"row 0: expected a class .* found 'kind'; call a column of labels 'label'"):
        diagnose(files, tmp_path / "labels.csv", class_names=NAMES)


def test_numbers_that_are_names_of_other_classes_are_refused(files, tmp_path):
    names = ["1", "2", "3", "4", "5", "6"]
    path = write_labels(tmp_path / "labels.csv", [names[label] for label in files.y])
    with pytest.raises(InputError, match=r"row 0: '\d' can be a class number or the name of class \d of class names"):
        diagnose(files, path, class_names=names)
    path = write_labels(tmp_path / "labels.csv", [str(label) for label in files.y])  # 0 is the name of none
    assert diagnose(files, path, class_names=names).students == diagnose(files, class_names=names).students


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64])
def test_one_hot_rows_are_classes_and_it_is_said(files, tmp_path, dtype):
    np.save(tmp_path / "one_hot.npy", np.eye(6, dtype=dtype)[files.y])
    found, expected = diagnose(files, tmp_path / "one_hot.npy"), diagnose(files)
    assert found.students == expected.students
    assert (found.one_hot_labels, expected.one_hot_labels, found.soft_labels) == (True, False, None)


def test_one_hot_rows_beside_a_truncated_teacher(files, tmp_path):
    np.save(tmp_path / "one_hot.npy", np.eye(6, dtype=int)[files.y])
    top = write_cut(files, 2)
    assert diagnose(files, tmp_path / "one_hot.npy", teacher=top).students == diagnose(files, teacher=top).students


def test_soft_labels_in_a_table_have_the_classes_of_the_logits(files, tmp_path):
    table = {name: np.eye(6)[files.y][:, place] for place, name in enumerate(NAMES)}
    parquet.write_table(pa.table(table), tmp_path / "soft.parquet")
    assert diagnose(files, tmp_path / "soft.parquet", class_names=NAMES).soft_labels.most_correct == 1
    with pytest.raises(InputError, match=r"soft\.parquet: class 0: expected 'Dog' as in class names, found 'cat'"):
        diagnose(files, tmp_path / "soft.parquet", class_names=[*NAMES[1:], NAMES[0]])


def test_a_column_may_be_chosen(files, tmp_path):
    parquet.write_table(pa.table({"topic": files.y, "label": 0 * files.y}), tmp_path / "labels.parquet")
    found = diagnose(files, tmp_path / "labels.parquet", label_column="topic")
    assert found.students == diagnose(files).students
    with pytest.raises(InputError, match=r"named 'topics', found label, topic; did you mean topic\?"):
        diagnose(files, tmp_path / "labels.parquet", label_column="topics")


# Rows of one block, all of a block, the first and the last.
LEFT_OUT = [0, 3, 4, *range(50, 100), 117, 119]


def ignore(files, rows=LEFT_OUT):
    labels = files.y.copy()
    labels[rows] = -100
    np.save(files.labels, labels)


def without(files, rows=LEFT_OUT):
    """The same files without these rows."""
    for path in (files.student, files.teacher, files.labels):
        np.save(path, np.delete(np.load(path), rows, 0))


@pytest.mark.parametrize("truncated", [False, True])
def test_ignored_rows_enter_nothing_and_are_counted(files, truncated):
    full = write_cut(files, 2, without_label=[1, 2]) if truncated else files.teacher
    ignore(files)
    found = diagnose(files, teacher=full)
    assert found.ignored == len(LEFT_OUT)
    if truncated:
        content = dict(np.load(full))
        np.savez(full, **{name: np.delete(array, LEFT_OUT, 0) for name, array in content.items()})
    without(files)
    expected = diagnose(files, teacher=full)
    assert expected.ignored == 0
    (one,), (other,) = found.students, expected.students
    kept = np.delete(np.arange(120), LEFT_OUT)
    assert [kept[state.row] for state in other.costliest] == [state.row for state in one.costliest]
    assert one.examples == other.examples == len(kept)
    assert one.competence == other.competence
    # Blocks begin elsewhere, so that sums are added in another order.
    assert one.all == pytest.approx(other.all, rel=1e-12)
    assert [state.examples for state in one.classes] == [state.examples for state in other.classes]
    assert one.frontier.values == pytest.approx(other.frontier.values, rel=1e-9)


def test_nothing_is_asked_of_the_logits_of_ignored_rows(files):
    ignore(files)
    for path in (files.student, files.teacher):
        logits = np.load(path)
        logits[LEFT_OUT] = np.nan
        np.save(path, logits)
    assert diagnose(files).ignored == len(LEFT_OUT)
    logits[1, 2] = np.nan
    np.save(files.teacher, logits)
    with pytest.raises(InputError, match=r"teacher\.npy: row 1: expected finite logits, found nan at class 2"):
        diagnose(files)


def test_probabilities_are_noticed_when_the_first_row_is_ignored(files):
    ignore(files)
    np.save(files.teacher, torch.from_numpy(files.zt).softmax(-1).numpy())
    with pytest.raises(InputError, match=r"teacher\.npy: row 1: expected logits, found probabilities"):
        diagnose(files)


def test_a_row_that_was_wrong_is_named_by_its_place_in_the_file(files):
    ignore(files)
    labels = np.load(files.labels)
    labels[118] = 6
    np.save(files.labels, labels)
    with pytest.raises(InputError, match=r"labels\.npy: row 118: expected a label from 0 to 5, found 6$"):
        diagnose(files)


def test_ignored_rows_of_a_truncated_teacher_are_named_by_their_place(files):
    top = write_cut(files, 2)
    ignore(files)
    content = dict(np.load(top))
    content["indices"][118, 0] = 77
    np.savez(top, **content)
    with pytest.raises(InputError, match=r"indices: row 118: "):
        diagnose(files, teacher=top)


def test_ids_name_the_rows_of_the_files(files, tmp_path):
    (tmp_path / "ids.txt").write_text("".join(f"id{row}\n" for row in range(120)))
    ignore(files)
    record = diagnose(files, ids=tmp_path / "ids.txt")
    assert [example.id for example in record.students[0].costliest] == [
        f"id{example.row}" for example in record.students[0].costliest
    ]


def test_the_record_says_what_was_left_out(files):
    assert "ignored" not in json.loads(diagnose(files).to_json())
    ignore(files)
    assert json.loads(diagnose(files).to_json())["ignored"] == len(LEFT_OUT)


@pytest.mark.parametrize(
    ("labels", "hint"), [([1, 3, 2], "they go from 1 to 3: subtract 1"), ([3, 0], "3$"), ([4, 1], "4$"), ([-5], "-100")]
)
def test_the_hint_fits_all_labels(files, labels, hint):
    opened = replace(open_inputs([files.student], files.teacher, files.labels).labels, shape=(len(labels),))
    check = LabelCheck(opened, 3)
    for row, label in enumerate(labels):
        check.add(row, torch.tensor([label]))
    with pytest.raises(InputError, match=hint):
        check.finish()
