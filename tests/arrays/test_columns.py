"""Which columns are classes, labels and ids."""

import pytest

from tpkd.arrays.columns import choose_columns, class_columns
from tpkd.errors import InputError

CASES = {
    "all columns": (["cat", "dog", "bird"], "logits", (0, 1, 2), ("cat", "dog", "bird"), False),
    "without labels and ids": (["id", "cat", "dog", "label"], "logits", (1, 2), ("cat", "dog"), False),
    "without the index of pandas": (["", "cat", "dog", "__index_level_0__"], "logits", (1, 2), ("cat", "dog"), False),
    "only the named ones": (["note", "logit cat", "logit_dog"], "logits", (1, 2), ("cat", "dog"), False),
    "as tpkd predict writes": (
        ["sample_id", "prediction", "label", "correct", "margin", "probability cat", "probability dog"],
        "probabilities",
        (5, 6),
        ("cat", "dog"),
        False,
    ),
    "a class that begins like a prefix": (["logit model", "tree"], "logits", (0, 1), ("logit model", "tree"), False),
    "numbered": (["0", "1", "2"], "logits", (0, 1, 2), None, False),
    "numbered from 1": (["V1", "V2", "V3"], "logits", (0, 1, 2), None, False),
    "prefixed and numbered": (["logits_0", "logits_1", "label"], "logits", (0, 1), None, False),
    "the column of that name": (["logits", "other", "label"], "logits", (0,), None, True),
    "a single column": (["anything"], "logits", (0,), None, True),
    "label": (["text", "label"], "labels", (1,), None, True),
    "a usual name": (["text", "category"], "labels", (1,), None, True),
    "the documented name wins": (["target", "label"], "labels", (1,), None, True),
    "ids": (["cat", "sample_id", "dog"], "ids", (1,), None, True),
    "labels by class": (["cat", "dog", "bird"], "labels", (0, 1, 2), ("cat", "dog", "bird"), False),
}


@pytest.mark.parametrize("name", CASES)
def test_the_columns_of_an_array(name):
    names, key, *expected = CASES[name]
    assert list(choose_columns("a.csv", names, key)) == expected


WRONG = {
    "twice": (["cat", "dog", "cat"], "logits", "a.csv: duplicate column 'cat'"),
    "no name": (["cat", "", "dog"], "logits", "a.csv: expected a name for column 2, found none"),
    "several labels": (["target", "category", "x"], "labels", "expected one column of labels, found 'category' and"),
    "no classes": (["id", "label"], "logits", "a.csv: expected columns of classes, found id, label"),
    "sorted as texts": (
        [f"logit_{place}" for place in (0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9)],
        "logits",
        "expected numbered columns in their order, found '10' in place 3 of the classes; sort the columns by number",
    ),
    "numbers in another order": (["2", "1", "0"], "logits", "found '2' in place 1 of the classes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_columns_that_could_be_mistaken_are_refused(name):
    names, key, message = WRONG[name]
    with pytest.raises(InputError) as caught:
        choose_columns("a.csv", names, key)
    assert message in str(caught.value)


@pytest.mark.parametrize("names", [("1990", "2000", "2010"), ("class 2", "class 3"), ("a1", "b2"), ("1", "1st")])
def test_names_that_hold_numbers_stay_names(names):
    assert class_columns("a.csv", names) == names
