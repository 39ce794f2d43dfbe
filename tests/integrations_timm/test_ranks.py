"""Two processes that share a batch take the step of one process."""

from pathlib import Path

from safetensors.torch import load_file

from integrations_timm.ranks import step
from integrations_timm.tiny import assert_gradients_close
from two_processes import run_two


def test_both_processes_hold_the_gradients_of_one_process(tmp_path):
    run_two(Path(__file__).with_name("ranks.py"), tmp_path)
    first, second = (load_file(tmp_path / f"rank-{rank}.safetensors") for rank in range(2))
    assert first.keys() == second.keys()
    assert all(gradient.equal(second[name]) for name, gradient in first.items())
    assert_gradients_close(first, step())
