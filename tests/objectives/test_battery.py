"""Every objective passes the one battery, and the battery fails when any of them is off by one per cent."""

import importlib

import pytest

from objectives.battery import CHECKS
from objectives.cases import CASES, Case
from tpkd.objectives import names


def test_the_battery_covers_every_registered_objective():
    assert {case.name for case in CASES} == set(names())


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

    def wrapper(*args, beta, **kwargs):
        return function(*args, beta=1.01 * beta, **kwargs)

    return wrapper


def scaled_gradient(function):
    """The right value with a gradient off by one per cent."""

    def wrapper(*args, **kwargs):
        loss = function(*args, **kwargs)
        return loss.detach() + 1.01 * (loss - loss.detach())

    return wrapper


SABOTAGE = (
    ("ce", "cross_entropy.label_rows", scaled),
    ("kd", "kd.imitation_rows", scaled),
    ("kd", "kd.label_rows", scaled),
    ("kl-dist", "transfer.imitation_rows", scaled),
    ("dkd", "dkd.decoupled_rows", scaled_second),
    ("dkd", "dkd.label_rows", scaled),
    ("dp-u", "transfer.imitation_rows", scaled),
    ("dp-s", "transfer.imitation_rows", scaled),
    ("xe-kl", "transfer.imitation_rows", scaled),
    ("xe-kl", "transfer.label_rows", scaled),
    ("dhkd", "dhkd.log_cosh_rows", scaled),
    ("dhkd", "dhkd.align_gradients", scaled),
    ("dto-kd", "dto_kd.kl_dist_loss", scaled),
    ("dto-kd", "dto_kd.effective_weights", scaled),
    *((name, "tpkd.direction_loss", scaled_beta) for name in names()[9:]),
    *((name, "tpkd.direction_loss", scaled_gradient) for name in names()[9:]),
)


def test_the_sabotage_table_covers_every_registered_objective():
    assert {name for name, _, _ in SABOTAGE} == set(names())


@pytest.mark.parametrize(("name", "target", "sabotage"), SABOTAGE, ids=lambda value: getattr(value, "__name__", value))
def test_one_per_cent_is_noticed(name, target, sabotage, monkeypatch):
    """With its main term, its label term or its gradient off by 1 % an objective fails at least one check."""
    module_name, attribute = target.split(".")
    module = importlib.import_module(f"tpkd.objectives.{module_name}")
    monkeypatch.setattr(module, attribute, sabotage(getattr(module, attribute)))
    noticed = []
    for check in CHECKS:
        try:
            check(Case(name))
        except AssertionError:
            noticed.append(check.__name__)
            break
    assert noticed, f"{name} passed every check with {target} off by 1 %"
