"""Size and speed are of the networks of the grid, measured once."""

import shutil
import time
from itertools import pairwise

import pytest
import torch
from torch import nn

from demo.small_demo import GRID, SEEDS, small_demo
from tpkd.compare.owner import networks
from tpkd.compare.owner.networks import keep_networks, read_networks, time_calls, together
from tpkd.compare.owner.record import Latency, NetworkCost
from tpkd.compare.record import NetworkState
from tpkd.compare.run import open_grid, read_comparison
from tpkd.demo.run import CONFIGS
from tpkd.errors import InputError
from tpkd.training.run import start_accelerator


@pytest.fixture(scope="module")
def made():
    return small_demo().report.parent


def places(made, output):
    return [
        f"output={output}/{{objective}}/seed-{{seed}}",
        f"teacher.weights={made}/teacher/student.safetensors",
        f"teacher.cache={made}/cache",
    ]


def parameters(*sizes):
    """Weights and biases of a perceptron."""
    return sum(rows * columns + columns for rows, columns in pairwise(sizes))


def test_sizes_are_those_of_the_networks(made):
    found = read_networks(made)
    record = read_comparison(made)
    assert (found.student.parameters, found.teacher.parameters) == (
        parameters(64, 96, 10),
        parameters(64, 256, 256, 10),
    )
    assert (found.student.bytes, found.teacher.bytes) == tuple(
        4 * each.parameters for each in (found.student, found.teacher)
    )
    assert (found.student.fingerprint, found.teacher.fingerprint) == (
        record.start.fingerprint,
        record.teacher.fingerprint,
    )
    assert (found.device, found.precision, found.threads) == ("cpu", "fp32", 1)
    for network in (found.student, found.teacher):
        assert [each.batch_size for each in network.latencies] == [1, 64]
        assert all(each.milliseconds > 0 and each.repeats >= 3 for each in network.latencies)


def test_they_are_measured_once(made, tmp_path, monkeypatch):
    shutil.copy(made / "networks.json", tmp_path)
    grid = open_grid(CONFIGS / "demo.yaml", [*places(made, tmp_path), *GRID], methods=["ce"], seeds=list(SEEDS))
    record, before = read_comparison(made), (tmp_path / "networks.json").read_bytes()
    monkeypatch.setattr(networks, "time_calls", lambda *_: (123.0, 3))
    keep_networks(grid, record.start, record.teacher)
    assert (tmp_path / "networks.json").read_bytes() == before
    for content in (before.replace(record.start.fingerprint.encode(), b"0" * 64), b"{"):  # another student, damage
        (tmp_path / "networks.json").write_bytes(content)
        keep_networks(grid, record.start, record.teacher)
        assert read_networks(tmp_path).teacher.latencies[0].milliseconds == 123.0
    keep_networks(grid, record.start, NetworkState("other", "1" * 64, 0.5, 1.0))
    assert read_networks(tmp_path).teacher.fingerprint == "1" * 64
    (tmp_path / "networks.json").write_bytes(b"{")
    with pytest.raises(InputError, match=r"networks\.json: damaged"):
        read_networks(tmp_path)


def test_a_batch_that_does_not_fit_has_no_time(made, tmp_path, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(networks, "time_calls", full)
    record = read_comparison(made)
    grid = open_grid(CONFIGS / "demo.yaml", [*places(made, tmp_path), *GRID], methods=["ce"], seeds=list(SEEDS))
    keep_networks(grid, record.start, record.teacher)
    assert [each.milliseconds for each in read_networks(tmp_path).student.latencies] == [None, None]


def test_a_single_run_has_the_size_of_its_student(made):
    found = read_networks(made / "ce" / "seed-42")
    assert (found.student.parameters, found.student.latencies, found.teacher) == (parameters(64, 96, 10), (), None)
    assert found.student.model == "builtin:mlp"


def test_several_teachers_cost_as_much_as_all_of_them():
    costs = [
        NetworkCost("average", "f", size, 4 * size, (Latency(1, milliseconds, 5), Latency(64, other, 3)))
        for size, milliseconds, other in ((10, 0.5, 0.25), (30, 1.0, None))
    ]
    assert together(costs) == NetworkCost("average", "f", 40, 160, (Latency(1, 1.5, 5), Latency(64, None, 3)))
    assert together(costs[:1]) == costs[0]


def test_a_directory_of_neither_has_none(tmp_path):
    assert read_networks(tmp_path) is None


def test_the_median_is_per_sample_and_after_a_first_call(made, monkeypatch):
    """By a clock that the test moves: the first call takes long, and so does one of the others."""
    clock = {"now": 0.0}
    durations = iter([9.0, 0.002, 0.004, 5.0])
    monkeypatch.setattr(time, "perf_counter", lambda: clock["now"])

    class Slow(nn.Module):
        def forward(self, inputs):
            clock["now"] += next(durations)
            return inputs

    config = open_grid(CONFIGS / "demo.yaml", [f"output={made}/{{objective}}/{{seed}}"], methods=["ce"]).base
    found = time_calls(Slow(), [(torch.zeros(2, 3), 2)], start_accelerator(config))
    assert found == (pytest.approx(2.0), 3)
