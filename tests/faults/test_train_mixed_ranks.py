"""Two processes that share every batch of mixed images do what one process does."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from faults.train_mixed_ranks import STEPS, all_steps
from tpkd.objectives import register, registry
from training.soft import SoftLabels
from training.tiny import with_cache
from two_processes import run_two


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What both processes found, and what one finds alone."""
    directory = tmp_path_factory.mktemp("mixed-ranks")
    with_cache(directory)
    run_two(Path(__file__).with_name("train_mixed_ranks.py"), directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_registered", dict(registry._registered))
        register(SoftLabels)
        alone = all_steps(directory)[1]
    return [load_file(directory / f"rank-{rank}.safetensors") for rank in range(2)], alone


@pytest.mark.parametrize("name", ["inputs", "labels"])
def test_both_shares_are_the_batch_of_one_process_bit_for_bit(together, name):
    shares, alone = together
    for step in STEPS:
        assert [len(share[f"{step}/{name}"]) for share in shares] == [16, 17]
        assert torch.cat([share[f"{step}/{name}"] for share in shares]).equal(alone[f"{step}/{name}"])


def test_gradients_are_those_of_one_process(together):
    shares, alone = together
    names = [name for name in alone if "gradient" in name or "loss" in name]
    assert len(names) == len(STEPS) * 5
    for name in names:
        assert shares[0][name].equal(shares[1][name])
        torch.testing.assert_close(shares[0][name], alone[name], rtol=0, atol=1e-5)


def test_after_a_step_padded_rows_have_a_label_of_zeros(together):
    shares, alone = together
    for step in STEPS:
        labels, teacher = (shares[0][f"{step}/after/{name}"] for name in ("labels", "teacher"))
        assert labels.equal(shares[1][f"{step}/after/labels"])
        assert labels.shape == (34, 10)
        assert not labels[16].any()
        rows = torch.arange(34) != 16
        assert labels[rows].equal(alone[f"{step}/after/labels"])
        torch.testing.assert_close(teacher[rows], alone[f"{step}/after/teacher"], rtol=0, atol=1e-5)


def test_a_truncated_teacher_is_gathered_field_by_field(together):
    first, second = together[0]
    assert first["top_k/indices"].tolist() == [[0, 0]] * 2 + [[-1, -1]] + [[1, 1]] * 3
    assert first["top_k/log_probs"].tolist() == [[-1.0, -1.0]] * 2 + [[0.0, 0.0]] + [[-2.0, -2.0]] * 3
    assert first["top_k/rest_log_probs"].tolist() == [-3.0, -3.0, 0.0, -3.0, -3.0, -3.0]
    assert all(first[name].equal(second[name]) for name in first if name.startswith("top_k"))
