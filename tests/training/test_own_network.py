"""A network of one's own as a classifier."""

import pytest
import torch
from torch import nn

from tpkd.errors import InputError
from tpkd.training.own_network import OwnNetwork, check_logits


class Answer:
    def __init__(self, logits):
        self.logits = logits


class Reader(nn.Module):
    """Takes texts as transformers does, and answers as it does."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 3)

    def forward(self, input_ids, attention_mask):
        return Answer((self.words(input_ids) * attention_mask.unsqueeze(-1)).sum(1))


TOKENS = {"input_ids": torch.tensor([[1, 2]]), "attention_mask": torch.ones(1, 2)}


def test_it_is_called_as_the_network_is():
    network = Reader()
    expected = network(**TOKENS).logits
    assert OwnNetwork(network, 3)(TOKENS).equal(expected)
    check_logits("student", network, TOKENS, 3)


def test_its_state_is_that_of_the_network():
    first, second = OwnNetwork(nn.Linear(4, 3), 3), OwnNetwork(nn.Linear(4, 3), 3)
    assert first.state_dict().keys() == {"weight", "bias"}
    second.load_state_dict(first.state_dict())
    assert second.network.weight.equal(first.network.weight)
    assert [name for name, _ in first.named_parameters()] == ["network.weight", "network.bias"]


def test_it_has_logits_alone():
    student = OwnNetwork(nn.Linear(4, 3), 3)
    assert (student.num_classes, student.layer_sizes, student.has_linear_head) == (3, (), False)
    with pytest.raises(InputError, match="expected a network of tpkd, timm or transformers"):
        student.classifier  # noqa: B018
    with pytest.raises(InputError, match="expected a network of tpkd, timm or transformers"):
        student._set_classifier(nn.Linear(4, 3))


def test_a_trial_leaves_the_mode_as_it_was():
    network = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)).train()
    check_logits("student", network, torch.ones(1, 4), 3)  # in training mode one row has no variance
    assert network.training
    assert network[0].num_batches_tracked == 0
