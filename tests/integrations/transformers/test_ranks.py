"""Two processes that share every batch take the step of one process."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from integrations.transformers.language_ranks import CASES, first_language_steps
from integrations.transformers.ranks import first_steps
from integrations.transformers.sharded import CASES as SHARDED
from integrations.transformers.sharded import gradients
from integrations.transformers.tiny import assert_close
from two_processes import run_two


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """A directory in which two processes have taken a step of every case, started as torchrun would start them."""
    directory = tmp_path_factory.mktemp("ranks")
    run_two(Path(__file__).with_name("ranks.py"), directory)
    return directory


def test_both_processes_hold_the_gradients_of_one_process(together, tmp_path):
    first, second = (load_file(together / f"rank-{rank}.safetensors") for rank in range(2))
    assert first.keys() == second.keys()
    assert all(value.equal(second[name]) for name, value in first.items())
    expected, logged = first_steps(tmp_path, 64, 1)
    assert_close(first, expected, 1e-13)  # float64: the same sums in another order
    for rank in range(2):
        entries = json.loads((together / f"rank-{rank}.json").read_text())
        for case, entry in entries.items():
            assert entry == pytest.approx(logged[case], rel=1e-5), case  # the log is kept in float32


def test_both_processes_hold_the_gradients_of_one_process_for_texts(together, tmp_path):
    first, second = (load_file(together / f"language-{rank}.safetensors") for rank in range(2))
    assert first.keys() == second.keys()
    assert {name.split("/")[0] for name in first} == set(CASES)
    assert all(value.equal(second[name]) for name, value in first.items())
    assert_close(first, first_language_steps(tmp_path, 8, 1), 1e-13)  # float64: the same sums in another order


def test_a_student_that_is_split_over_two_processes_has_the_gradients_of_one(tmp_path):
    run_two(Path(__file__).with_name("sharded.py"), tmp_path)
    first, second = (load_file(tmp_path / f"sharded-{rank}.safetensors") for rank in range(2))
    assert all(value.equal(second[name]) for name, value in first.items())
    for case in SHARDED:
        found = {name.removeprefix(f"{case}/"): value for name, value in first.items() if name.startswith(f"{case}/")}
        assert any(value.any() for value in found.values())
        assert_close(found, gradients(case, [0, 1], sharded=False), 1e-13)
