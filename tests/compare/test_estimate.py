"""The estimated end of a grid, with clocks that the tests set: exact where cells are even, sane where they are not."""

from datetime import datetime

import pytest

from tpkd.compare.estimate import Pace, Teller, duration, outlook, schedule

STEPS, PER_STEP, BEFORE, AFTER = 100, 0.5, 8.0, 3.0
"""A grid of even cells; a cell takes 8 s to its first report, then 99 steps of half a second, then 3 s."""
WHOLE = BEFORE + (STEPS - 1) * PER_STEP + AFTER


def play(cells, places, until):
    """The events of a grid of even cells up to a time, which takes each free place for the next cell."""
    events, free = [], [0.0] * places
    for number in range(cells):
        place = min(range(places), key=free.__getitem__)
        begin, name = free[place], f"cell-{number}"
        events.append((begin, "start", name, 0))
        events += [(begin + BEFORE + step * PER_STEP, "report", name, step + 1) for step in range(STEPS)]
        events.append((begin + WHOLE, "end", name, 0))
        free[place] = begin + WHOLE
    pace = Pace(cells)
    for time, kind, name, done in sorted(events, key=lambda event: (event[0], event[2], event[1] != "end")):
        if time > until:
            break
        if kind == "start":
            pace.start(name, time)
        elif kind == "report":
            pace.report(name, done, STEPS, time)
        else:
            pace.end(name, time)
    return pace, max(free)


@pytest.mark.parametrize(("cells", "places"), [(1, 1), (4, 1), (4, 2), (5, 2), (7, 3)])
def test_even_cells_give_the_exact_end_once_one_has_finished(cells, places):
    for now in (WHOLE + 0.25, WHOLE + 20.25, 1.5 * WHOLE):
        pace, end = play(cells, places, now)
        if cells > places:
            # A cell has one step more than intervals between reports, and all but the first are measured.
            rounds = -(-cells // places)
            assert pace.seconds_left(now) == pytest.approx(end - now, abs=rounds * PER_STEP)


def test_before_the_first_end_only_steps_are_known():
    now = 20.25
    pace, end = play(4, 2, now)
    left = pace.seconds_left(now)
    assert end - now - 2 * (BEFORE + AFTER) - 1 <= left < end - now
    assert play(4, 2, BEFORE - 1)[0].seconds_left(BEFORE - 1) is None
    assert play(4, 2, BEFORE)[0].seconds_left(BEFORE) is None, "one report has no duration"


def test_a_cell_that_continues_is_measured_by_the_steps_it_takes_now():
    pace = Pace(1)
    pace.start("a", 0.0)
    pace.report("a", 900, 1000, 5.0)
    pace.report("a", 910, 1000, 25.0)
    assert pace.seconds_left(25.0) == 90 * 2.0
    assert pace.seconds_left(35.0) == 90 * 2.0 - 10, "the time since the last report has passed"
    assert pace.share == 0.91


def test_the_estimate_never_goes_below_zero():
    pace = Pace(1)
    pace.start("a", 0.0)
    pace.report("a", 1, 3, 1.0)
    pace.report("a", 3, 3, 2.0)
    assert pace.seconds_left(500.0) == 0.0


def test_a_failed_cell_is_over_and_one_that_starts_again_starts_anew():
    pace = Pace(3)
    for name in "ab":
        pace.start(name, 0.0)
        pace.report(name, 1, 11, 10.0)
        pace.report(name, 6, 11, 20.0)
    pace.end("a", 21.0, failed=True)
    assert (pace.ended, pace.running) == (1, {"b": 6})
    assert pace.seconds_left(21.0) == pytest.approx(22.0), "the failed cell says nothing about starts and ends"
    pace.start("b", 30.0)
    assert pace.running == {"b": 0}
    assert pace.seconds_left(30.0) == pytest.approx(22.0)


def test_a_cell_that_had_only_to_be_read_counts():
    pace = Pace(2)
    pace.start("a", 0.0)
    pace.end("a", 1.0)
    assert pace.share == 0.0, "nothing is known about steps"
    pace.start("b", 1.0)
    pace.report("b", 5, 10, 2.0)
    assert pace.share == 0.75
    assert pace.seconds_left(2.0) is None
    assert Pace(0).share == 0.0


def test_places_are_filled_as_they_become_free():
    assert schedule([], 0, 5.0, 1) == 0.0
    assert schedule([3.0, 9.0], 1, 5.0, 2) == 9.0
    assert schedule([3.0, 9.0], 2, 5.0, 2) == 13.0
    assert schedule([-4.0], 1, 5.0, 1) == 5.0
    assert schedule([1.0, 2.0, 3.0], 0, 5.0, 2) == 3.0


def test_the_end_names_its_day_only_where_it_is_another():
    evening = datetime(2026, 12, 31, 23, 30)
    assert outlook(1799, evening) == "about 29 min left, ends 23:59"
    assert outlook(1800, evening) == "about 30 min left, ends 2027-01-01 00:00"
    assert duration(86400 * 3 + 5) == "3 d 0 h"


@pytest.mark.parametrize(("seconds", "least", "most"), [(2, 0, 0), (60, 2, 11), (3600, 50, 130), (3 * 86400, 100, 220)])
def test_a_log_has_some_lines_however_long_the_work_takes(seconds, least, most):
    """Reports come five times a second in short work, and 100,000 times in long work."""
    teller, reports = Teller(), min(5 * seconds, 100_000)
    told = [teller.is_due(report / reports, seconds * report / reports) for report in range(reports + 1)]
    assert least <= sum(told) <= most


def test_a_log_says_nothing_while_nothing_happens():
    teller = Teller()
    assert not any(teller.is_due(0.5, 40.0 * report) for report in range(10))
    assert teller.is_due(0.51, 400.0)
