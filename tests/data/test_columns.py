"""Which columns of a table are used: named ones, usual ones, and what is refused."""

import pytest

from data.tables import write_csv
from tpkd.data.columns import Columns
from tpkd.data.loading import load_dataset
from tpkd.errors import InputError


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        (["text", "label"], ("text", "label")),
        (["utterance", "intent", "scenario"], ("utterance", "intent")),
        (["text", "sentence", "label", "category"], ("text", "label")),
        (["img", "coarse_label", "fine_label"], ("img", "fine_label")),
    ],
)
def test_usual_names_are_recognised(found, chosen):
    assert Columns().choose("a", found, images=True)[1:3] == chosen


@pytest.mark.parametrize(
    ("columns", "found", "problem"),
    [
        ({}, ["sentence", "content", "label"], "expected one column for the text, found 'sentence' and 'content'"),
        ({}, ["text", "category", "intent"], r"found 'category' and 'intent'; choose one .* \{label: category\}"),
        ({}, ["q", "topic"], r"found 'q, topic'; name yours with data.columns, such as \{text: q, label: topic\}"),
        ({}, ["text", "image", "label"], "expected a text or an image per row, found 'text' and 'image'"),
        (
            {"text": "txt"},
            ["text", "label"],
            r"column 'txt' of data.columns.text, found 'text, label'; did you mean text",
        ),
        ({"id": "uid"}, ["text", "label"], "expected the column 'uid' of data.columns.id"),
        ({}, ["text", "label", "label"], "duplicate column 'label'"),
    ],
)
def test_columns_that_cannot_be_told_are_refused(columns, found, problem):
    with pytest.raises(InputError, match=f"a: .*{problem}"):
        Columns.from_names(columns).choose("a", found, images=True)


def test_a_role_that_does_not_exist_and_two_inputs_are_refused():
    with pytest.raises(InputError, match=r"columns: expected text, .*found 'lable'; did you mean label\?"):
        Columns.from_names({"lable": "x"})
    with pytest.raises(InputError, match="columns: expected a text or an image, found both"):
        Columns.from_names({"text": "x", "image": "y"})
    with pytest.raises(InputError, match=r"data.columns.image: expected none in a table of texts, found 'text'"):
        Columns.from_names({"image": "text"}).choose("a", ["text", "label"])


def test_the_same_rows_under_other_names_are_the_same_data(tmp_path):
    rows = ["hello,greet,7", "bye,leave,8"]
    write_csv(tmp_path / "a.csv", rows, header="text,label,n")
    write_csv(tmp_path / "b.csv", rows, header="text,category,n")
    write_csv(tmp_path / "c.csv", rows, header="question,topic,n")
    (tmp_path / "d.tsv").write_text("\n".join(["text\tlabel", "hello\tgreet", "bye\tleave"]))
    named = {"text": "question", "label": "topic"}
    plain = load_dataset("csv:a.csv", "train", root=tmp_path).fingerprint
    assert load_dataset("csv:b.csv", "train", root=tmp_path).fingerprint == plain
    assert load_dataset("csv:c.csv", "train", root=tmp_path, columns=named).fingerprint == plain
    assert load_dataset("tsv:d.tsv", "train", root=tmp_path).fingerprint == plain


def test_the_fingerprint_of_a_table_is_that_of_earlier_releases(tmp_path):
    write_csv(tmp_path / "a.csv", ["hello,greet", "bye,leave", "hey,greet"])
    found = load_dataset("csv:a.csv", "train", root=tmp_path).fingerprint
    assert found == "7c128f85d3ec77db9f5efc3449a23974398abeeb584159a201850ff9ff5fc4c5"


def test_named_ids_do_not_change_when_rows_move(tmp_path):
    write_csv(tmp_path / "train.csv", ["hello,greet,u7", "bye,leave,u8"], header="text,label,uid")
    write_csv(tmp_path / "test.csv", ["hey,greet,u7"], header="text,label,uid")
    ids = {}
    for split in ("train", "test"):
        data = load_dataset(f"csv:{tmp_path}", split, columns={"id": "uid"})
        ids |= dict(zip(data.inputs, data.ids.tolist(), strict=True))
    assert len(set(ids.values())) == 3
    write_csv(tmp_path / "train.csv", ["new,leave,u1", "bye,leave,u8", "hello,greet,u7"], header="text,label,uid")
    moved = load_dataset(f"csv:{tmp_path}", "train", columns={"id": "uid"})
    assert dict(zip(moved.inputs, moved.ids.tolist(), strict=True)).items() >= {
        (text, ids[text]) for text in ("hello", "bye")
    }


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (["hello,greet,u7", "bye,leave,u7"], "line 3: id: expected different ids, found 'u7' again, as in line 2"),
        (["hello,greet,u7", "bye,leave, "], "line 3: id: expected a name or a whole number, found ' '"),
    ],
)
def test_ids_that_do_not_tell_rows_apart_are_refused(tmp_path, rows, problem):
    write_csv(tmp_path / "train.csv", rows, header="text,label,uid")
    with pytest.raises(InputError, match=f"train.csv: {problem}"):
        load_dataset(f"csv:{tmp_path}", "train", columns={"id": "uid"})


def test_data_without_columns_refuse_their_names():
    with pytest.raises(InputError, match=r"digits: has no named columns; leave out data.columns"):
        load_dataset("digits", "train", columns={"text": "x"})
