"""A journal grows by its lines alone, says how far it is whole, and names the line that is damaged."""

import errno
import os

import pytest

from tpkd.errors import InputError
from tpkd.teacher.cache import journal
from tpkd.teacher.cache.journal import append_line, begin_journal, trim_journal


def read_journal(path, binding):
    entries = []
    end = journal.read_journal(path, binding, lambda number, entry: entries.append((number, entry)))
    assert [number for number, _ in entries] == list(range(1, len(entries) + 1))
    return [entry for _, entry in entries], end


@pytest.fixture
def path(tmp_path):
    path, end = tmp_path / "shards.jsonl", begin_journal("binding")
    for number in range(5):
        end = append_line(path, {"number": number}, end)
    return path


def test_lines_come_back_in_order_and_the_end_is_where_the_next_goes(path):
    entries, end = read_journal(path, "binding")
    assert entries == [{"number": number} for number in range(5)]
    assert (end.length, end.torn) == (path.stat().st_size, False)
    append_line(path, {"number": 5}, end)
    assert [entry["number"] for entry in read_journal(path, "binding")[0]] == list(range(6))


def test_a_line_costs_its_own_bytes_however_many_there_are(tmp_path, monkeypatch):
    written, true_tail = [], journal._replace_tail
    monkeypatch.setattr(
        journal, "_replace_tail", lambda path, at, tail: written.append(len(tail)) or true_tail(path, at, tail)
    )
    path, end = tmp_path / "shards.jsonl", begin_journal("binding")
    for _ in range(200):
        end = append_line(path, {"file": "shard", "rows": 10}, end)
    assert len(set(written)) == 1
    assert sum(written) == path.stat().st_size


def test_a_journal_that_is_not_there_has_no_lines(tmp_path):
    assert read_journal(tmp_path / "shards.jsonl", "binding") == ([], begin_journal("binding"))


def test_every_torn_end_is_dropped_and_written_over(path):
    data = path.read_bytes()
    start = data.rindex(b"\n", 0, -1) + 1
    whole = read_journal(path, "binding")[1]
    for stop in range(start, len(data)):
        path.write_bytes(data[:stop])
        entries, end = read_journal(path, "binding")
        assert (len(entries), end.length, end.torn) == (4, start, stop > start)
        assert append_line(path, {"number": 4}, end) == whole
        assert path.read_bytes() == data
    path.write_bytes(data + b"\0" * 50)
    entries, end = read_journal(path, "binding")
    assert (len(entries), end.torn) == (5, True)
    trim_journal(path, end)
    assert path.read_bytes() == data


def test_damage_before_the_last_line_is_named(path):
    data = path.read_bytes()
    # Without the end of the last line but one, the rest looks like one line, which was never finished.
    for place in range(data.rindex(b"\n", 0, -1)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        path.write_bytes(flipped)
        line = data.count(b"\n", 0, place) + 1
        with pytest.raises(InputError, match=f"shards.jsonl: line {line}: damaged; restore the file, or delete"):
            read_journal(path, "binding")


def test_lines_that_are_missing_turned_or_of_another_cache_are_noticed(path):
    lines = path.read_bytes().splitlines(keepends=True)
    for changed, line in [([0, 2, 3, 4], 2), ([1, 0, 2, 3, 4], 1), ([0, 0, 1, 2, 3], 2), ([1, 2, 3, 4], 1)]:
        path.write_bytes(b"".join(lines[number] for number in changed))
        with pytest.raises(InputError, match=f"line {line}: damaged"):
            read_journal(path, "binding")
    path.write_bytes(b"".join(lines))
    with pytest.raises(InputError, match="line 1: damaged"):
        read_journal(path, "another")


@pytest.mark.parametrize("call", ["fsync", "write"])
def test_a_disk_that_refuses_a_line_leaves_the_journal_as_it_was(path, monkeypatch, call):
    data, end = path.read_bytes(), read_journal(path, "binding")[1]
    if call == "fsync":

        def refuse(descriptor):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "fsync", refuse)
    else:
        resource = pytest.importorskip("resource")
        signal = pytest.importorskip("signal")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        monkeypatch.setattr(signal, "_kept", signal.signal(signal.SIGXFSZ, signal.SIG_IGN), raising=False)
        resource.setrlimit(resource.RLIMIT_FSIZE, (end.length + 5, limits[1]))
    try:
        with pytest.raises(InputError, match=r"shards\.jsonl: cannot be written: "):
            append_line(path, {"number": 5}, end)
    finally:
        if call == "write":
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, signal._kept)
    monkeypatch.undo()
    assert path.read_bytes() == data


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "shards.jsonl").symlink_to("precious")
    with pytest.raises(InputError, match="cannot be written"):
        append_line(tmp_path / "shards.jsonl", {}, begin_journal("binding"))
    assert (tmp_path / "precious").read_text() == "mine"
