"""The section `optimizer`: its kinds, their defaults, and what is refused."""

import pytest
import torch

from config.minimal import refused
from tpkd.config.loading import load_config


def test_adamw_has_the_defaults_of_torch(file):
    config = load_config(file, ["optimizer={name: adamw, learning_rate: 0.001}"]).optimizer
    theirs = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))]).defaults
    assert (config.betas, config.eps, config.weight_decay) == (theirs["betas"], theirs["eps"], theirs["weight_decay"])
    assert (config.learning_rate, config.layer_decay) == (0.001, None)


def test_nesterov_and_layer_decay_are_off_unless_asked_for(file):
    plain = load_config(file).optimizer
    assert (plain.nesterov, plain.layer_decay) == (False, None)
    asked = load_config(file, ["optimizer.nesterov=true", "optimizer.layer_decay=0.75"]).optimizer
    assert (asked.nesterov, asked.layer_decay) == (True, 0.75)


@pytest.mark.parametrize(
    ("override", "part"),
    [
        (
            "optimizer={name: sgd, learning_rate: 1, momentum: 0, nesterov: true}",
            "nesterov: expected a momentum above 0",
        ),
        ("optimizer.layer_decay=0", "optimizer.layer_decay: Input should be greater than 0, found 0"),
        ("optimizer.layer_decay=1.5", "optimizer.layer_decay: Input should be less than or equal to 1, found 1.5"),
        ("optimizer.betas=[0.9, 0.99]", "optimizer.betas: unknown key, expected one of layer_decay, learning_rate, "),
        ("optimizer.name=adm", "optimizer.name: expected one of sgd, adamw, adam-weight-decay, found 'adm'; did you "),
        ("optimizer={learning_rate: 1}", "optimizer.name: missing, expected one of sgd, adamw, adam-weight-decay"),
        ("optimizer=sgd", "optimizer: expected keys and values, found 'sgd'"),
        ("optimizer.name=[sgd]", "optimizer.name: expected one of sgd, adamw, adam-weight-decay, found ['sgd']"),
    ],
)
def test_mistakes_are_named(file, override, part):
    assert part in refused(file, [override])
