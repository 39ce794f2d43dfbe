import numpy as np
import pytest

from tpkd.teacher.cache.entries import (
    IndexEntry,
    ShardEntry,
    index_contradictions,
    read_shard_entry,
    shard_contradictions,
)
from tpkd.teacher.cache.runs import Run

NAME, DIGEST = "shard-00000.safetensors", "0" * 64


def test_an_entry_says_where_its_keys_lie():
    entry = ShardEntry(NAME, 5, 300, DIGEST).with_keys(np.array([7, 7, 8, 8, 3]), np.array([0, 1, 0, 1, 1]), 2)
    assert (entry.first, entry.last) == ((7, 0), (3, 1))
    assert entry.key_runs == [Run(7, 0, 4), Run(3, 1, 1)]
    assert ShardEntry.from_json(entry.to_json()) == entry
    assert not list(shard_contradictions(entry, NAME, 5))


def test_keys_in_any_order_have_no_runs():
    keys = np.arange(20)[::-1]
    entry = ShardEntry(NAME, 20, 300, DIGEST).with_keys(keys, np.zeros(20, int), 1)
    assert (entry.first, entry.last, entry.key_runs) == ((19, 0), (0, 0), None)
    assert "runs" not in entry.to_dict()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"runs": None},
        {"first": None},
        {"first": [1.0, 2]},
        {"first": [True, 2]},
        {"last": "ab"},
        {"runs": 3},
        {"runs": [3]},
        {"runs": [["a", 0, 2]]},
        {"runs": {}},
        {"rows": True},
        {"rows": "5"},
        {"file": None},
        {"schema": 2},
        {"schema": True},
        {"crc": "x"},
    ],
)
def test_a_line_is_read_as_the_record_would_be(changes):
    line = ShardEntry(NAME, 5, 300, DIGEST, (1, 0), (5, 0), ((1, 0, 5),)).to_dict() | changes
    outcomes = []
    for read in (ShardEntry.from_dict, read_shard_entry):
        try:
            outcomes.append(read(line))
        except ValueError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"file": "shard-00001.safetensors"}, "file"),
        ({"rows": 4}, "rows"),
        ({"sha256": "0" * 63 + "g"}, "sha256"),
        ({"first": (1, 2, 3)}, "first"),
        ({"last": ()}, "last"),
        ({"runs": ()}, "runs"),
        ({"runs": ((1, 0, 6), (9, 0, -1))}, "runs"),
        ({"runs": ((1, 0, 3), (9, 0))}, "runs"),
    ],
)
def test_what_no_build_writes_about_a_shard_is_found(changes, field):
    entry = ShardEntry(**{"file": NAME, "rows": 5, "bytes": 300, "sha256": DIGEST} | changes)
    assert [name for name, _, _ in shard_contradictions(entry, NAME, 5)] == [field]


def test_what_no_build_writes_about_an_index_is_found():
    assert not list(index_contradictions(IndexEntry("index.safetensors", 1, 300, DIGEST)))
    found = index_contradictions(IndexEntry("index.safetensors", 0, 300, "x"))
    assert [name for name, _, _ in found] == ["width", "sha256"]
