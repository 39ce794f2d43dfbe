"""Two processes of Lightning's own DDP step with one gradient, that of the whole batch under an uneven mask."""

import pytest
import torch

from integrations.lightning.ranks import DATA
from integrations.lightning.tiny import Student, assert_close, network, own_gradients, run_script
from tpkd.integrations.labels import valid_positions
from tpkd.objectives import create
from tpkd.theory import observe


@pytest.mark.parametrize("kind", DATA)
def test_two_processes_step_with_the_gradient_of_the_whole_batch(tmp_path, kind):
    done = run_script("ranks.py", tmp_path, kind)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (torch.load(tmp_path / f"rank-{rank}.pt") for rank in range(2))
    (inputs, labels), teacher = DATA[kind](), network(7)
    valid = valid_positions(labels).view(2, 2, 16).sum(-1)
    assert len(set(valid.flatten().tolist())) > 2, "the mask must be uneven over micro-batches and processes"
    (gradients,) = first["gradients"]
    assert_close(gradients, own_gradients(Student(), teacher, inputs, labels, create("tpkd")))
    for name, each in second["gradients"][0].items():
        assert torch.equal(each, gradients[name])
    assert len(first["wrapped"]) == 4, "DDP wraps the student alone"
    seen = observe(network(0)(inputs), teacher(inputs), labels)
    expected = {f"monitor/{name}": each.item() for name, each in seen.items()}
    assert first["monitor"] == pytest.approx(expected, rel=1e-5)
    assert second["monitor"] == first["monitor"]
