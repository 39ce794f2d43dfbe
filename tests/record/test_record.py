"""Records survive JSON unchanged, and what does not fit is refused by its key."""

import json
import math
from dataclasses import dataclass
from typing import ClassVar

import pytest

from tpkd.record import Record


@dataclass(frozen=True)
class Part:
    name: str
    share: float | None
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Whole(Record):
    schema: ClassVar[int] = 3
    done: bool
    parts: tuple[Part, ...]
    means: dict[str, float]


WHOLE = Whole(True, (Part("a <b>", None, (1, 2)), Part("ü", 0.1, ())), {"x": 1 / 3})


def test_json_brings_back_the_same_record():
    assert Whole.from_json(WHOLE.to_json()) == WHOLE


def test_the_schema_stands_first_and_numbers_are_not_rounded():
    data = json.loads(WHOLE.to_json())
    assert list(data) == ["schema", "done", "parts", "means"]
    assert data["schema"] == 3
    assert data["means"]["x"] == 1 / 3
    assert data["parts"][0] == {"name": "a <b>", "share": None, "counts": [1, 2]}


def test_json_has_no_nan():
    with pytest.raises(ValueError, match="JSON compliant"):
        Whole(True, (), {"x": math.nan}).to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema=2), "schema: expected 3 for Whole, got 2"),
        (lambda d: d.pop("schema"), "schema: expected 3"),
        (lambda d: d.pop("means"), r"Whole: missing \['means'\]"),
        (lambda d: d.update(extra=1), r"unknown \['extra'\]"),
        (lambda d: d.update(done=1), r"Whole\.done: expected bool, got 1"),
        (lambda d: d["parts"][1].update(share="x"), r"Whole\.parts\[1\]\.share: expected a number, got 'x'"),
        (lambda d: d["parts"][1].update(counts=[1.5]), r"counts\[0\]: expected int, got 1\.5"),
        (lambda d: d.update(parts={}), r"Whole\.parts: expected a list"),
        (lambda d: d.update(means=[]), r"Whole\.means: expected an object"),
        (lambda d: d["means"].update(x=True), r"Whole\.means\.x: expected a number, got True"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key(change, message):
    data = WHOLE.to_dict()
    change(data)
    with pytest.raises(ValueError, match=message):
        Whole.from_dict(data)


def test_something_else_than_an_object_is_refused():
    with pytest.raises(ValueError, match="got 'list'"):
        Whole.from_json("[]")
