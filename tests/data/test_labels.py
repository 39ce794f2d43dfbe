"""Labels as users write them: their order, and those that are mistakes."""

import json

import pytest

from data.tables import write_csv
from tpkd.data.loading import load_dataset
from tpkd.errors import InputError


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


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
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
    ],
)
def test_rows_that_are_not_what_they_seem_are_refused(tmp_path, rows, problem):
    write_csv(tmp_path / "train.csv", rows)
    with pytest.raises(InputError, match=f"train.csv: {problem}"):
        load_dataset(f"csv:{tmp_path}", "train")


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
