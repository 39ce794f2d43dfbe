"""Status files: what another terminal sees, attempts on several machines, and events for the one that waits."""

import pytest

from tpkd.errors import InputError
from tpkd.executors import status as module
from tpkd.executors.jobs import JobEvent
from tpkd.executors.status import (
    StatusReader,
    StatusWriter,
    announce,
    cancel_path,
    read_status,
    read_statuses,
    status_path,
)
from tpkd.files import write_file


def test_a_job_from_waiting_to_its_end(tmp_path):
    write_file(cancel_path(tmp_path), "")
    announce(tmp_path, ["b", "a"], where="here")
    assert not cancel_path(tmp_path).exists()
    assert [(found.job, found.kind, found.where) for found in read_statuses(tmp_path)] == [
        ("a", "waiting", "here"),
        ("b", "waiting", "here"),
    ]
    writer = StatusWriter(tmp_path, where="there")
    writer.note(JobEvent("started", "a"))
    writer.note(JobEvent("progress", "a", 3, 9))
    found = read_status(tmp_path, "a")
    assert (found.kind, found.done, found.total, found.where, found.attempt) == ("progress", 3, 9, "there", 1)
    writer.note(JobEvent("failed", "a", problem="why", trace="where"))
    assert (read_status(tmp_path, "a").problem, read_status(tmp_path, "a").trace) == ("why", "where")


def test_an_attempt_is_counted_only_after_a_loss(tmp_path):
    for expected, last in ((1, "progress"), (2, "finished"), (1, "finished")):
        writer = StatusWriter(tmp_path, where="node")
        writer.note(JobEvent("started", "a"))
        writer.note(JobEvent(last, "a", 1, 2))
        assert read_status(tmp_path, "a").attempt == expected


def test_progress_is_written_now_and_then(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    writer, written = StatusWriter(tmp_path, where="node"), []
    writer.note(JobEvent("started", "a"))
    for step in range(1, 31):
        clock[0] = step / 10
        writer.note(JobEvent("progress", "a", step, 30))
        written.append(read_status(tmp_path, "a").done)
    assert sorted(set(written)) == [1, 11, 21]


def test_progress_does_not_bring_a_removed_directory_back(tmp_path):
    writer = StatusWriter(tmp_path / "grid", where="node")
    writer.note(JobEvent("progress", "a", 1, 2))
    assert not (tmp_path / "grid").exists()


def test_a_reader_tells_each_event_once_and_a_new_machine_as_a_new_start(tmp_path):
    StatusWriter(tmp_path, where="old").note(JobEvent("finished", "a"))
    reader = StatusReader(tmp_path, ["a"])
    assert list(reader.events()) == []
    first = StatusWriter(tmp_path, where="node-1")
    first.note(JobEvent("started", "a"))
    first.note(JobEvent("progress", "a", 1, 2))
    assert [(event.kind, event.where) for event in reader.events()] == [("started", "node-1"), ("progress", "node-1")]
    second = StatusWriter(tmp_path, where="node-2")
    second.note(JobEvent("started", "a"))
    assert [(event.kind, event.where) for event in reader.events()] == [("started", "node-2")]
    second.note(JobEvent("finished", "a"))
    assert list(reader.events()) == []  # the executor tells how it ended


def test_a_damaged_file_is_named_and_a_reader_waits_for_it(tmp_path):
    reader = StatusReader(tmp_path, ["a"])
    write_file(status_path(tmp_path, "a"), '{"schema": 1, ')
    with pytest.raises(InputError, match=r"a\.json"):
        read_statuses(tmp_path)
    assert list(reader.events()) == []
