"""The explorer's JavaScript says what the library says, on a thousand cases."""

from collections import Counter
from pathlib import Path

import pytest

import tpkd.report
from browsing import launched, needs_browser
from figures.random_cases import COUNT, KINDS, make_cases

pytestmark = needs_browser

SCRIPTS = Path(tpkd.report.__file__).parent / "templates" / "explorer"
ABSOLUTE = 1e-14
"""What sums of a few numbers up to one lose by rounding."""
RELATIVE = 1e-9
"""Far above what the two libraries of exp and log differ by, far below what a wrong formula would."""
UNDECIDED = 1e-12
"""Closer to the border of the blocked region, rounding decides on which side a prediction lies."""


@pytest.fixture(scope="module")
def page():
    with launched() as browser:
        page = browser.new_page()
        for name in ("theory.js", "cases.js"):
            page.add_script_tag(path=str(SCRIPTS / name))
        yield page


@pytest.fixture(scope="module")
def compared(page):
    cases = make_cases()
    found = page.evaluate("cases => cases.map((given) => tpkdCases.numbersOf(given))", cases)
    return list(zip(cases, found, strict=True))


def entries(value):
    return list(value) if isinstance(value, list | tuple) else [value]


def differences(case, found, excess):
    for name, expected in case["numbers"].items():
        ours, theirs = entries(found[name]), entries(expected)
        assert len(ours) == len(theirs), name
        if name == "blocked":
            if ours != theirs and not (case["kind"] == "border" and abs(excess) < UNDECIDED):
                yield name, ours, theirs
            continue
        size = max(abs(value) for value in theirs if value is not None) if any(v is not None for v in theirs) else 0.0
        for value, wanted in zip(ours, theirs, strict=True):
            if wanted is None:
                if value is not None and abs(value) != float("inf"):
                    yield name, ours, theirs
            elif not abs(value - wanted) <= ABSOLUTE + RELATIVE * size:
                yield name, ours, theirs


def test_a_thousand_cases_of_every_kind(compared):
    kinds = Counter(case["kind"] for case, _ in compared)
    assert len(compared) == COUNT
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) > 50
    assert {len(case["labels"]) for case, _ in compared} == {3, 4, 5, 6}
    assert {case["numbers"]["blocked"] for case, _ in compared} == {True, False}


def test_every_number_is_the_library_s(page, compared):
    excesses = page.evaluate(
        """cases => cases.map(({student_logits: z, teacher_logits: zt, labels}) =>
            tpkdTheory.largestExcess(tpkdTheory.splitPair(z, zt, labels)))""",
        [case for case, _ in compared],
    )
    wrong = [
        (case["kind"], *problem)
        for (case, found), excess in zip(compared, excesses, strict=True)
        for problem in differences(case, found, excess)
    ]
    assert not wrong, f"{len(wrong)} numbers, first: {wrong[:3]}"


def test_equal_predictions_are_blocked_and_leave_nothing_to_do(compared):
    for case, found in compared:
        if case["kind"] == "equal":
            assert found["blocked"]
            assert found["conditional"] == [0] * len(case["labels"])
            assert found["retention"] == 1


def test_the_check_of_the_page_finds_a_wrong_number(page, compared):
    """`firstDifference` tells what the page says in its footer."""
    agreed = "given => tpkdCases.firstDifference(tpkdCases.numbersOf(given), given.numbers) ?? null"
    for case in [case for case, _ in compared if case["kind"] != "border"][::40]:
        assert page.evaluate(agreed, case) is None, case
        for name in ("transfer_cost", "safe"):
            expected = case["numbers"][name]
            changed = [entry + 1e-3 for entry in expected] if isinstance(expected, tuple) else expected + 1e-3
            assert page.evaluate(agreed, {**case, "numbers": {**case["numbers"], name: changed}}) == name
