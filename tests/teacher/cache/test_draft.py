"""What a draft gives back is what was put into it, up to the first byte that is not."""

import numpy as np
import pytest

from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.teacher.cache import build as builder
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.draft import Draft, discard_drafts
from tpkd.teacher.cache.shards import shard_layout

ROWS = 12


def random_shard(recipe):
    generator = np.random.default_rng(0)
    layout = shard_layout(recipe, ROWS)
    return {name: generator.integers(0, 100, shape).astype(dtype) for name, (dtype, shape) in layout.items()}


def empty(arrays):
    return {name: np.zeros_like(array) for name, array in arrays.items()}


def assert_restored(directory, arrays, rows):
    found = empty(arrays)
    assert Draft(directory, 3).restore(found) == rows
    for name, array in arrays.items():
        assert np.array_equal(found[name][:rows], array[:rows])


@pytest.mark.parametrize("top_k", [None, 2])
def test_rows_come_back_up_to_the_end_of_a_whole_piece(tmp_path, top_k):
    arrays = random_shard(make_recipe(top_k=top_k))
    draft = Draft(tmp_path, 3)
    for start, stop in ((0, 4), (4, 9), (9, 10)):
        draft.append(arrays, start, stop)
    data = draft.path.read_bytes()
    assert_restored(tmp_path, arrays, 10)
    ends = {4: 0, 9: 0, 10: len(data)}
    for length in range(0, len(data), 5):
        draft.path.write_bytes(data[:length])
        found = Draft(tmp_path, 3).restore(empty(arrays))
        assert found in (0, 4, 9)
        ends[found] = max(ends.get(found, 0), length)
        assert_restored(tmp_path, arrays, found)
    assert ends[0] < ends[4] < ends[9]


def test_a_flipped_byte_ends_what_is_taken(tmp_path):
    arrays, draft = random_shard(make_recipe()), Draft(tmp_path, 3)
    draft.append(arrays, 0, 4)
    first = draft.path.stat().st_size
    draft.append(arrays, 4, 9)
    data = draft.path.read_bytes()
    for place in range(0, len(data), 3):
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        draft.path.write_bytes(flipped)
        assert_restored(tmp_path, arrays, 0 if place < first else 4)


def test_what_follows_a_torn_piece_is_written_over_it(tmp_path):
    arrays, draft = random_shard(make_recipe()), Draft(tmp_path, 3)
    draft.append(arrays, 0, 4)
    draft.append(arrays, 4, 9)
    data = draft.path.read_bytes()
    draft.path.write_bytes(data[:-1])
    again = Draft(tmp_path, 3)
    assert again.restore(empty(arrays)) == 4
    again.append(arrays, 4, 9)
    assert draft.path.read_bytes() == data
    again.discard()
    again.discard()
    assert Draft(tmp_path, 3).restore(empty(arrays)) == 0


def test_a_draft_of_another_shard_is_not_taken(tmp_path):
    arrays = random_shard(make_recipe())
    Draft(tmp_path, 3).append(arrays, 0, 4)
    assert Draft(tmp_path, 4).restore(empty(arrays)) == 0
    other = random_shard(make_recipe(dtype="float32"))
    assert Draft(tmp_path, 3).restore(empty(other)) == 0
    discard_drafts(tmp_path, keep={4})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stop_at", [3, 14, 15, 36, 47, 50, 68])
def test_an_interrupted_shard_goes_on_from_its_draft(tmp_path, monkeypatch, stop_at):
    monkeypatch.setattr(builder, "DRAFT_ROWS", 6)
    rows, recipe, first = make_rows(), make_recipe(), Teacher()
    build_cache(tmp_path / "whole", rows, Teacher(), recipe, shard_rows=40, block_rows=4)

    def forward(keys):
        if len(first.rows_seen) + len(keys) > stop_at:
            raise KeyboardInterrupt
        return first(keys)

    with pytest.raises(KeyboardInterrupt):
        build_cache(tmp_path / "stopped", rows, forward, recipe, shard_rows=40, block_rows=4)
    second, told = Teacher(), []
    build_cache(tmp_path / "stopped", rows, second, recipe, block_rows=4, on_progress=told.append)
    repeated = set(first.rows_seen) & set(second.rows_seen)
    assert len(repeated) < 6 + 4
    assert len(first.rows_seen) + len(second.rows_seen) == len(rows) + len(repeated)
    assert told[0].rows_done == len(rows) - len(second.rows_seen)
    whole, stopped = (
        {path.name: path.read_bytes() for path in place.iterdir() if path.name != ".lock"}
        for place in (tmp_path / "whole", tmp_path / "stopped")
    )
    assert stopped == whole


def test_a_draft_of_a_whole_shard_is_not_believed(tmp_path, monkeypatch):
    """No build writes one: without a row to compute, the shard would never be written."""
    monkeypatch.setattr(builder, "DRAFT_ROWS", 6)
    rows, recipe = make_rows(), make_recipe()
    build_cache(tmp_path, rows, Teacher(), recipe, shard_rows=40, block_rows=4)
    path = tmp_path / "shard-00001.safetensors"
    content = path.read_bytes()
    path.unlink()
    layout = shard_layout(recipe, 29)
    Draft(tmp_path, 1).append({name: np.zeros(shape, dtype) for name, (dtype, shape) in layout.items()}, 0, 29)
    build_cache(tmp_path, rows, Teacher(), recipe, block_rows=4)
    assert path.read_bytes() == content
    assert not list(tmp_path.glob(".draft-*"))
