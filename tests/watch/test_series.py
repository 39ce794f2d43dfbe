"""Metrics that grow, are half written, are cut back by a run that continues, or are not ours."""

import itertools
import json
import os

import pytest

from tpkd.watch.series import MAX_POINTS, RunReader, Thinned
from watch.runs import line, metrics


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def points(reader, name="loss"):
    return list(zip(*reader.curves[name].columns(), strict=True))


def test_only_new_lines_are_read_and_a_half_line_waits(path):
    reader = RunReader(path)
    assert not reader.refresh()
    path.write_text(line("train", 1, loss=3.0) + line("train", 2, loss=2.0)[:20])
    assert reader.refresh()
    assert points(reader) == [(1, 3.0)]
    version = reader.version
    assert not reader.refresh()
    assert reader.version == version
    append(path, line("train", 2, loss=2.0)[20:])
    assert reader.refresh()
    assert points(reader) == [(1, 3.0), (2, 2.0)]
    assert reader.unreadable == 0


def test_every_cut_of_a_file_gives_its_whole_lines(path):
    whole = metrics(range(1, 4)).encode()
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        reader = RunReader(path)
        reader.refresh()
        path.write_bytes(whole)
        reader.refresh()
        assert points(reader) == [(1, 1.0), (2, 0.5), (3, 1 / 3)], cut
        assert reader.unreadable == 0


def test_a_run_that_continues_is_read_anew(path):
    path.write_text("".join(line("train", step, loss=float(step)) for step in range(1, 9)))
    reader = RunReader(path)
    reader.refresh()
    kept = "".join(line("train", step, loss=float(step)) for step in range(1, 5))
    path.write_text(kept)
    assert reader.refresh()
    assert points(reader) == [(step, float(step)) for step in range(1, 5)]
    # Cut back and grown past its old length between two looks.
    path.write_text(kept + "".join(line("train", step, loss=-step / 7) for step in range(5, 40)))
    assert reader.refresh()
    assert points(reader)[3:6] == [(4, 4.0), (5, -5 / 7), (6, -6 / 7)]


def test_steps_that_come_again_replace_those_before(path):
    path.write_text("".join(line("train", step, loss=float(step)) for step in (1, 2, 3, 2, 3)).replace("3.0", "9.0"))
    reader = RunReader(path)
    reader.refresh()
    assert points(reader) == [(1, 1.0), (2, 2.0), (3, 9.0)]


@pytest.mark.parametrize(
    "text",
    [
        "not json\n",
        "[1]\n",
        '{"kind": "train"}\n',
        '{"kind": "train", "step": "x", "loss": 1}\n',
        "\x00\x01\n",
        '{"step": true}\n',
    ],
)
def test_what_is_not_ours_is_counted_and_left_out(path, text):
    path.write_text(line("train", 1, loss=1.0) + text + line("train", 2, loss=2.0))
    reader = RunReader(path)
    reader.refresh()
    assert points(reader) == [(1, 1.0), (2, 2.0)]
    assert reader.unreadable == 1


@pytest.mark.parametrize("value", ["null", "true", '"1"', "[1]", "1e999", "NaN"])
def test_a_value_that_is_no_number_leaves_a_gap(path, value):
    path.write_text(f'{{"kind": "train", "step": 1, "loss": {value}}}\n')
    reader = RunReader(path)
    reader.refresh()
    assert points(reader) == []
    assert reader.step == 1


def test_a_line_without_an_end_does_not_fill_the_memory(path):
    path.write_text("x" * (5 << 20) + "\n" + line("train", 1, loss=1.0))
    reader = RunReader(path)
    reader.refresh()
    assert points(reader) == [(1, 1.0)]
    assert reader.unreadable >= 1


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert not RunReader(tmp_path / "metrics.jsonl").refresh()


def test_long_curves_are_thinned_evenly_and_end_with_the_newest():
    curve = Thinned()
    for step in range(1, 100_001):
        curve.add(step, step / 2)
    steps, values = curve.columns()
    assert MAX_POINTS / 2 < len(steps) <= MAX_POINTS + 1
    assert steps[-1] == 100_000
    assert values == [step / 2 for step in steps]
    gaps = {after - before for before, after in itertools.pairwise(steps[:-1])}
    assert len(gaps) == 1


def test_numbers_are_those_of_the_file(path):
    path.write_text(metrics([7], scale=0.1))
    reader = RunReader(path)
    reader.refresh()
    written = json.loads(path.read_text().splitlines()[1])
    for name in ("blocked_share", "conditional_loss", "transfer_cost"):
        assert reader.curves[name].last == (7, written[name])
