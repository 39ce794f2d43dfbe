"""Optimiser states of other programs: read, and fitted to the optimiser of a run by the order of parameters."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tpkd.arrays.torch_files import load_tensors
from tpkd.errors import InputError
from tpkd.models.state_files import PICKLED
from tpkd.training.checkpoint import Checkpoint, Checkpoints
from tpkd.training.state import join_optimizer

OPTIMIZER_KEYS = ("optimizer", "optimizer_state_dict", "optim")
"""Keys under which checkpoints of other programs store the state of the optimiser."""

_MOMENTS = {
    "SGD": ("momentum_buffer",),
    "AdamWeightDecay": ("first_moment", "second_moment"),
    "AdamW": ("step", "exp_avg", "exp_avg_sq"),
}
"""What an optimiser keeps for each parameter, by its class."""
_OTHER_NAMES = {"exp_avg": "first_moment", "exp_avg_sq": "second_moment"}
"""Adam's names of the moments -> those of Google's Adam, which are the same averages."""


def find_checkpoint(path: Path) -> tuple[Checkpoint, Path]:
    """The checkpoint of ours that a directory is, or the newest one in it; and its own directory.

    Raises:
        InputError: there is none, or it is damaged.
    """
    inside, beside = Checkpoints(path, keep=1), Checkpoints(path.parent, keep=1)
    for checkpoints, steps in ((inside, inside.steps()[-1:]), (beside, beside.steps())):
        for step in steps:
            place = checkpoints.directory / f"step-{step:06d}"
            if checkpoints is inside or place.name == path.name:
                found = checkpoints.load(step)
                assert found is not None
                return found, place
    raise InputError(f"{path}: expected a file, or a directory step-NNNNNN of a run's checkpoints, found neither")


def read_optimizer(path: Path) -> dict[str, Any]:
    """The state dict of an optimiser: from a file of torch, alone or in a checkpoint, or from a checkpoint of ours.

    Raises:
        InputError: the file is missing or damaged, or holds no such state.
    """
    if path.is_dir():
        checkpoint, _ = find_checkpoint(path)
        return join_optimizer(checkpoint.groups["optimizer"], checkpoint.values["optimizer"])
    if path.suffix not in PICKLED:
        expected = f"a {', '.join(PICKLED)} file of torch or a checkpoint directory of a run"
        raise InputError(f"{path}: expected the state of an optimiser, {expected}, found the suffix {path.suffix!r}")
    content = load_tensors(path)
    if isinstance(content, dict) and "param_groups" not in content:
        content = next((content[key] for key in OPTIMIZER_KEYS if isinstance(content.get(key), dict)), content)
    if not _is_state_dict(content):
        keys = f"the keys {', '.join(sorted(map(str, content))[:8])}" if isinstance(content, dict) else "something else"
        expected = f"the state dict of an optimiser, or one under {', '.join(OPTIMIZER_KEYS)}"
        raise InputError(f"{path}: expected {expected}, found {keys}")
    checked: dict[str, Any] = content
    return checked


def _is_state_dict(content: Any) -> bool:
    if not isinstance(content, dict) or not {"state", "param_groups"} <= content.keys():
        return False
    state, groups = content["state"], content["param_groups"]
    return (
        isinstance(groups, list)
        and all(isinstance(group, dict) and isinstance(group.get("params"), list) for group in groups)
        and all(type(index) is int for group in groups for index in group["params"])
        and isinstance(state, dict)
        and all(isinstance(entries, dict) for entries in state.values())
    )


def fit_optimizer(
    found: dict[str, Any], optimizer: torch.optim.Optimizer, order: Sequence[nn.Parameter], place: str
) -> dict[str, Any]:
    """A state dict for an optimiser, with the moments of another one; its settings stay its own.

    Args:
        found: the state dict of the other one.
        optimizer: the run's.
        order: the parameters as the other program lists them, for one with a single group. Several groups must have
            the sizes of the run's own, and their parameters the same order.
        place: its name in messages.

    Raises:
        InputError: other parameters, shapes or moments.
    """
    ours = optimizer.state_dict()
    flat = list(chain.from_iterable(group["params"] for group in optimizer.param_groups))
    sizes = [len(group["params"]) for group in found["param_groups"]]
    own_sizes = [len(group["params"]) for group in optimizer.param_groups]
    if len(sizes) != 1 and sizes != own_sizes:
        raise InputError(f"{place}: expected one group of parameters, or groups of {own_sizes}, found {sizes}")
    learned = {id(parameter): index for index, parameter in enumerate(flat)}
    listed = flat if len(sizes) > 1 else [parameter for parameter in order if id(parameter) in learned]
    indices = list(chain.from_iterable(group["params"] for group in found["param_groups"]))
    if len(indices) != len(listed):
        raise InputError(f"{place}: expected {len(listed)} parameters, as the student has, found {len(indices)}")
    state = {}
    for index, parameter in zip(indices, listed, strict=True):
        entries = _entries(found["state"].get(index, {}), optimizer, parameter, f"{place}: parameter {index}")
        if entries:
            state[learned[id(parameter)]] = entries
    if not state:
        raise InputError(f"{place}: expected moments of the parameters, found none; leave it out to start without")
    return {"state": state, "param_groups": ours["param_groups"]}


def _entries(
    found: dict[str, Any], optimizer: torch.optim.Optimizer, parameter: nn.Parameter, place: str
) -> dict[str, Any]:
    kept = {name: value for name, value in found.items() if value is not None}
    kind = type(getattr(optimizer, "optimizer", optimizer)).__name__  # accelerate wraps it
    names = _MOMENTS.get(kind, tuple(kept))
    if kind == "AdamWeightDecay":
        kept = {_OTHER_NAMES.get(name, name): value for name, value in kept.items()}
    if kept and not kept.keys() >= set(names):
        expected = f"{', '.join(names)}, as {kind} keeps them"
        raise InputError(
            f"{place}: expected {expected}, found {', '.join(map(str, kept))}; set `optimizer` accordingly"
        )
    for name in names:
        _check_moment(f"{place}: {name}", kept.get(name, 0.0), parameter)
    return {name: kept[name] for name in names if name in kept}


def _check_moment(place: str, value: Any, parameter: nn.Parameter) -> None:
    if not isinstance(value, Tensor):
        if isinstance(value, int | float):
            return
        raise InputError(f"{place}: expected a tensor or a number, found {type(value).__name__}")
    if value.layout != torch.strided or value.is_quantized or not value.is_floating_point():
        raise InputError(f"{place}: expected a dense tensor of real numbers, found {value.dtype} in {value.layout}")
    if value.dim() and value.shape != parameter.shape:
        raise InputError(f"{place}: expected shape {tuple(parameter.shape)}, found {tuple(value.shape)}")
    if not value.isfinite().all():
        raise InputError(f"{place}: expected finite numbers, found {value[~value.isfinite()].flatten()[0].item()}")
