"""A bound is shown as one, and rounding does not carry it past itself."""

from types import SimpleNamespace

import pytest

from tpkd.diagnosis.marks import bound_of, signed, worded

CUT = SimpleNamespace(bounds={"a": "lower", "b": "upper", "c": "completed", "d": "exact"})
WHOLE = SimpleNamespace(bounds=None)


def test_signs_and_words():
    assert signed(CUT, "a", "nats", 0.52399) == "≥ 0.523"
    assert signed(CUT, "b", "share", 0.34001) == "≤ 34.1 %"
    assert signed(CUT, "b", "count", 41) == "≤ 41"
    assert signed(CUT, "c", "share", 0.81349) == "~ 81.3 %"
    assert signed(CUT, "d", "nats", 0.52399) == "0.524"
    assert worded(CUT, "a", "nats", 0.52399) == "at least 0.523"
    assert worded(CUT, "b", "share", 0.34001) == "at most 34.1 %"
    assert worded(CUT, "c", "nats", 1.0) == "1.000"


@pytest.mark.parametrize("write", [signed, worded])
def test_what_is_not_there_has_no_bound(write):
    assert write(CUT, "a", "nats", None) == "none"


def test_a_whole_teacher_has_exact_numbers_only():
    assert bound_of(WHOLE, "anything") == "exact"
    assert signed(WHOLE, "a", "nats", 0.52399) == worded(WHOLE, "a", "nats", 0.52399) == "0.524"


def test_a_number_that_no_one_has_judged_is_an_error_and_not_exact():
    with pytest.raises(KeyError):
        bound_of(CUT, "new")
