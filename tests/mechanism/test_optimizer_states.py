"""Moments of another optimiser reach the right parameters, or are refused by their file."""

import copy
import pickle

import pytest
import torch
from torch import nn

from tpkd.config.optimizers import AdamWConfig, AdamWeightDecayConfig, SGDConfig
from tpkd.errors import InputError
from tpkd.mechanism.optimizer_states import find_checkpoint, fit_optimizer, read_optimizer
from tpkd.training.optimizer import build_optimizer


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def stepped(optimizer, model):
    model(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()
    return optimizer.state_dict()


def their_adamw():
    model = network()
    return stepped(torch.optim.AdamW(model.parameters(), lr=0.1), model), model


def test_moments_of_adam_become_those_of_googles_by_parameter():
    """One group there, two here: decayed parameters first, so the order is another one."""
    found, _ = their_adamw()
    model = network()
    optimizer = build_optimizer(AdamWeightDecayConfig(learning_rate=0.1), model)
    fitted = fit_optimizer(found, optimizer, list(model.parameters()), "adam.pt")
    optimizer.load_state_dict(fitted)
    for place, parameter in enumerate(model.parameters()):
        assert torch.equal(optimizer.state[parameter]["first_moment"], found["state"][place]["exp_avg"])
        assert torch.equal(optimizer.state[parameter]["second_moment"], found["state"][place]["exp_avg_sq"])
        assert optimizer.state[parameter].keys() == {"first_moment", "second_moment"}
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]


def test_torchs_adamw_takes_its_own_state_with_its_count_of_steps():
    found, theirs = their_adamw()
    model = network()
    model.load_state_dict(theirs.state_dict())
    optimizer = build_optimizer(AdamWConfig(learning_rate=0.1, weight_decay=0.0), model)
    optimizer.load_state_dict(fit_optimizer(found, optimizer, list(model.parameters()), "adamw.pt"))
    there = torch.optim.AdamW(theirs.parameters(), lr=0.1, weight_decay=0.0)
    there.load_state_dict(copy.deepcopy(found) | {"param_groups": there.state_dict()["param_groups"]})
    for steps, network_there in ((there, theirs), (optimizer, model)):
        network_there.zero_grad()
        stepped(steps, network_there)
    for ours, other in zip(model.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ours, other, rtol=0, atol=0)


def test_groups_of_the_same_sizes_are_taken_in_order():
    source = network()
    theirs = stepped(build_optimizer(AdamWeightDecayConfig(learning_rate=0.1), source), source)
    model = network()
    optimizer = build_optimizer(AdamWeightDecayConfig(learning_rate=0.2), model)
    fitted = fit_optimizer(theirs, optimizer, list(model.parameters()), "own.pt")
    assert fitted["state"].keys() == theirs["state"].keys()
    for index, entries in theirs["state"].items():
        assert torch.equal(fitted["state"][index]["first_moment"], entries["first_moment"])
    assert fitted["param_groups"][0]["lr"] == 0.2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found["param_groups"][0]["params"].pop(), "expected 6 parameters, as the student has, found 5"),
        (lambda found: found["state"].clear(), "expected moments of the parameters, found none"),
        (
            lambda found: found["state"][0].update(momentum_buffer=torch.zeros(4, 4)),
            r"parameter 0: momentum_buffer: expected shape \(4, 3\), found \(4, 4\)",
        ),
        (
            lambda found: found["state"][1].update(momentum_buffer=torch.zeros(4).to_sparse()),
            "parameter 1: momentum_buffer: expected a dense tensor",
        ),
        (
            lambda found: found["state"][1].update(momentum_buffer=torch.tensor([1.0, torch.inf, 0.0, 0.0])),
            "parameter 1: momentum_buffer: expected finite numbers, found inf",
        ),
        (
            lambda found: found["state"][1].update(momentum_buffer="large"),
            "parameter 1: momentum_buffer: expected a tensor or a number, found str",
        ),
        (
            lambda found: found.update(param_groups=[{"params": [0, 1]}, {"params": [2, 3, 4, 5]}]),
            r"expected one group of parameters, or groups of \[6\], found \[2, 4\]",
        ),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    model = network()
    config = SGDConfig(learning_rate=0.1)
    found = stepped(build_optimizer(config, model), model)
    optimizer = build_optimizer(config, model)
    change(found)
    with pytest.raises(InputError, match=f"^sgd.pt: {message}"):
        fit_optimizer(found, optimizer, list(model.parameters()), "sgd.pt")


def test_another_kind_of_optimiser_is_refused_by_what_it_keeps():
    found, model = their_adamw()
    optimizer = build_optimizer(SGDConfig(learning_rate=0.1), model)
    with pytest.raises(
        InputError, match="expected momentum_buffer, as SGD keeps them, found step, exp_avg, exp_avg_sq"
    ):
        fit_optimizer(found, optimizer, list(model.parameters()), "adam.pt")


@pytest.mark.parametrize("key", [None, "optimizer", "optimizer_state_dict", "optim"])
def test_a_checkpoint_gives_the_optimiser_inside_it(key, tmp_path):
    found, _ = their_adamw()
    torch.save(found if key is None else {"epoch": 3, "model": {"w": torch.ones(2)}, key: found}, tmp_path / "o.pt")
    read = read_optimizer(tmp_path / "o.pt")
    assert torch.equal(read["state"][5]["exp_avg"], found["state"][5]["exp_avg"])


class Trap:
    def __reduce__(self):
        return print, ("ran",)


def test_other_files_are_one_line(tmp_path, capsys):
    wrong = {
        "weights.pt": {"w": torch.ones(2)},
        "list.pt": [1, 2],
        "groups.pt": {"state": {}, "param_groups": [{"lr": 1.0}]},
        "state.pt": {"state": {0: 3}, "param_groups": [{"params": [0]}]},
        "index.pt": {"state": {}, "param_groups": [{"params": [[0]]}]},
        "trap.pt": Trap(),
        "trap.txt": None,
    }
    for name, content in wrong.items():
        path = tmp_path / name
        path.write_bytes(pickle.dumps(content)) if name.startswith("trap") else torch.save(content, path)
        with pytest.raises(InputError, match=str(path)) as error:
            read_optimizer(path)
        assert "\n" not in str(error.value)
    found, _ = their_adamw()
    torch.save(found, tmp_path / "whole.pt")
    whole = (tmp_path / "whole.pt").read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.pt").write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"cut\.pt: damaged"):
            read_optimizer(tmp_path / "cut.pt")
    for missing in (tmp_path, tmp_path / "none.pt"):
        with pytest.raises(InputError, match=str(missing)):
            read_optimizer(missing)
    assert "ran" not in capsys.readouterr().out


def test_a_directory_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected a file, or a directory step-NNNNNN of a run's checkpoints"):
        find_checkpoint(tmp_path)
