"""What a loop and an objective say to each other."""

import pytest
import torch

from objectives.cases import make_inputs
from tpkd.objectives import Batch, create


def test_an_epoch_counted_from_zero_is_refused():
    with pytest.raises(ValueError, match="epoch: expected a count from 1, got 0"):
        Batch(student_logits=torch.zeros(1, 3), epoch=0)


def test_a_stateless_objective_refuses_a_state():
    objective = create("kd")
    assert objective.state_dict() == {}
    assert objective.modules() == {}
    assert objective.metrics(make_inputs().batch()) == {}
    objective.load_state_dict({})
    objective.after_step(make_inputs().batch())
    with pytest.raises(ValueError, match="state: objective 'kd' has none, got weights"):
        objective.load_state_dict({"weights": torch.zeros(2)})


def test_combining_is_adding_unless_an_objective_says_otherwise():
    gradients = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0, 4.0])}
    assert create("kd").combine(gradients).tolist() == [4.0, 6.0]
