"""The one interface: everything is submitted, events are passed on, and whatever happens the executor is cancelled."""

import pytest

from tpkd.errors import InputError
from tpkd.executors.jobs import Executor, JobEvent, attempt, run_jobs


class Recorded(Executor):
    def __init__(self, events):
        super().__init__(print)
        self.calls, self._events = [], events

    def submit(self, job, payload):
        self.calls.append(("submit", job, payload))

    def events(self):
        yield from self._events

    def cancel(self):
        self.calls.append(("cancel",))


def test_jobs_are_submitted_in_order_and_events_passed_on():
    executor, seen = Recorded([JobEvent("started", "a"), JobEvent("finished", "a")]), []
    run_jobs(executor, {"a": 1, "b": 2}, seen.append)
    assert executor.calls == [("submit", "a", 1), ("submit", "b", 2), ("cancel",)]
    assert [(event.kind, event.is_end) for event in seen] == [("started", False), ("finished", True)]


def test_an_interrupted_caller_cancels():
    executor = Recorded([JobEvent("started", "a")])

    def interrupted(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(executor, {"a": 1}, interrupted)
    assert executor.calls[-1] == ("cancel",)


@pytest.mark.parametrize(
    ("error", "problem", "traced"),
    [
        (InputError("file: wrong"), "file: wrong", False),
        (ValueError("first\nsecond"), "ValueError: first", True),
        (EOFError(), "EOFError", True),
    ],
)
def test_a_failure_is_one_line_and_a_trace_if_it_is_a_bug(error, problem, traced):
    def work(payload, on_progress):
        raise error

    event = attempt("a", None, work, print)
    assert (event.kind, event.problem, bool(event.trace)) == ("failed", problem, traced)


def test_progress_is_thinned_out_but_the_last_step_is_told():
    events = []
    attempt("a", None, lambda _, on_progress: [on_progress(step, 500) for step in range(1, 501)], events.append)
    assert events[0].done == 1
    assert events[-1].done == 500
    assert len(events) < 500
