"""Every objective passes the one battery, and the battery fails when any of them is off by one per cent."""

import importlib
from dataclasses import replace
from functools import reduce

import pytest

from objectives.battery import CHECKS
from objectives.cases import CASES, PAPER, Case


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_objective(case, check):
    check(case)


def scaled(function):
    """The same function, off by one per cent."""

    def wrapper(*args, **kwargs):
        return 1.01 * function(*args, **kwargs)

    return wrapper


def scaled_second(function):
    def wrapper(*args, **kwargs):
        first, second = function(*args, **kwargs)
        return first, 1.01 * second

    return wrapper


def scaled_beta(function):
    """The teacher's term of TPKD or of a control, off by one per cent."""

    def wrapper(objective, *args, **kwargs):
        return function(replace(objective, beta=1.01 * objective.beta), *args, **kwargs)

    return wrapper


def scaled_gradient(function):
    """The right value with a gradient off by one per cent."""

    def wrapper(*args, **kwargs):
        loss = function(*args, **kwargs)
        return loss.detach() + 1.01 * (loss - loss.detach())

    return wrapper


DIRECTIONS = (
    ("tpkd", "tpkd.TPKD"),
    ("tpkd-no-ce", "controls.TPKDWithoutCE"),
    ("safe-full-kl", "controls.SafeFullKL"),
    ("tpkd-no-projection", "controls.TPKDWithoutProjection"),
    ("compensation-only", "controls.CompensationOnly"),
)
SABOTAGE = (
    ("ce", "cross_entropy.label_rows", scaled),
    ("kd", "kd.imitation_rows", scaled),
    ("kd", "kd.label_rows", scaled),
    ("kl-dist", "kl_dist.imitation_rows", scaled),
    ("dkd", "dkd.decoupled_rows", scaled_second),
    ("dkd", "dkd.label_rows", scaled),
    ("dp-u", "dp.imitation_rows", scaled),
    ("dp-s", "dp.imitation_rows", scaled),
    ("xe-kl", "xe_kl.imitation_rows", scaled),
    ("xe-kl", "xe_kl.label_rows", scaled),
    ("dhkd", "binary_kl.BinaryKLNorm.row_losses", scaled),
    ("dhkd", "dhkd.align_gradients", scaled),
    ("dto-kd", "dto_kd.kl_dist_loss", scaled),
    ("dto-kd", "dto_kd.effective_weights", scaled),
    *(
        (name, f"{target}.__call__", sabotage)
        for name, target in DIRECTIONS
        for sabotage in (scaled_beta, scaled_gradient)
    ),
)


def test_the_sabotage_table_covers_every_method_of_the_paper():
    assert {name for name, _, _ in SABOTAGE} == PAPER


@pytest.mark.parametrize(("name", "target", "sabotage"), SABOTAGE, ids=lambda value: getattr(value, "__name__", value))
def test_one_per_cent_is_noticed(name, target, sabotage, monkeypatch):
    """With its main term, its label term or its gradient off by 1 % an objective fails at least one check."""
    module_name, *path, attribute = target.split(".")
    holder = reduce(getattr, path, importlib.import_module(f"tpkd.objectives.{module_name}"))
    monkeypatch.setattr(holder, attribute, sabotage(getattr(holder, attribute)))
    noticed = []
    for check in CHECKS:
        try:
            check(Case(name))
        except AssertionError:
            noticed.append(check.__name__)
            break
    assert noticed, f"{name} passed every check with {target} off by 1 %"
