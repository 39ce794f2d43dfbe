"""The coefficient of TPKD in a study: that of the objective's settings, one for TPKD and all its controls."""

import math
from collections.abc import Iterable

from tpkd.config.loading import ConfigError, method_settings
from tpkd.config.schema import RunConfig
from tpkd.geometry import PAPER_BETA
from tpkd.objectives import Objective, create

_FAMILY = ("tpkd", "tpkd-no-ce", "safe-full-kl", "tpkd-no-projection", "compensation-only")
"""TPKD and the controls that change its direction and nothing else; `beta` of another objective is something else."""


def study_beta(config: RunConfig, objectives: Iterable[str]) -> float:
    """The coefficient that the settings of these objectives, or of the run's own, ask for; the paper's 1/2 without any.

    A study compares TPKD with parts of itself, so all of them have the same coefficient: what is said for one holds for
    the others, and two that differ are refused.

    Args:
        config: the run; settings of another objective than its own are in its section `methods`.
        objectives: those that the study compares.

    Raises:
        ConfigError: two coefficients, or one that is not positive: with 0 TPKD is cross-entropy.

    Example:
        >>> from tpkd.config.loading import resolve_config
        >>> run = {"output": "runs/a", "data": {"name": "digits"}, "student": {"model": "builtin:mlp"}, "epochs": 60}
        >>> run |= {"objective": "ce", "optimizer": {"name": "sgd", "learning_rate": 0.1}}
        >>> study_beta(resolve_config(run), ("ce", "tpkd"))
        0.5
        >>> methods = {"tpkd": {"objective.settings": {"beta": 1.0}}}
        >>> study_beta(resolve_config(run | {"methods": methods}), ("ce", "tpkd"))
        1.0
    """
    # The run's own and TPKD's first: the others are measured against them.
    names = dict.fromkeys((config.objective.name, "tpkd", *objectives))
    chosen: dict[str, float] = {}
    for name in names:
        settings = method_settings(config, name) if name in _FAMILY else {}
        if "beta" in settings:
            chosen[name] = settings["beta"]
    for name, beta in chosen.items():
        key, first = f"{name}: objective.settings.beta", next(iter(chosen))
        is_number = isinstance(beta, int | float) and not isinstance(beta, bool)
        if not is_number or not 0 < beta < math.inf:
            raise ConfigError(
                f"{key}: expected a positive number for a study, because 0 is cross-entropy, found {beta!r}"
            )
        if beta != chosen[first]:
            way_out = "a study compares them at one coefficient"
            raise ConfigError(f"{key}: expected {chosen[first]} as for {first}, found {beta}; {way_out}")
    return float(next(iter(chosen.values()), PAPER_BETA))


def create_for_study(name: str, beta: float) -> Objective:
    """An objective of a study, with the coefficient where it has one.

    Example:
        >>> create_for_study("tpkd", 1.0), create_for_study("ce", 1.0)
        (TPKD(beta=1.0, temperature=1.0), CrossEntropy())
    """
    return create(name, beta=beta) if name in _FAMILY else create(name)
