"""Every objective by name, for configs, comparisons and `tpkd methods`."""

from dataclasses import dataclass, fields
from typing import Any

from tpkd.errors import did_you_mean
from tpkd.objectives.base import Objective
from tpkd.objectives.cross_entropy import CrossEntropy
from tpkd.objectives.dhkd import DHKD
from tpkd.objectives.dkd import DKD
from tpkd.objectives.dto_kd import DTOKD
from tpkd.objectives.kd import KD
from tpkd.objectives.tpkd import TPKD, CompensationOnly, SafeFullKL, TPKDWithoutCE, TPKDWithoutProjection
from tpkd.objectives.transfer import DPS, DPU, XEKL, KLDist

_OBJECTIVES: dict[str, type[Objective]] = {
    objective.name: objective
    for objective in (
        CrossEntropy,
        KD,
        KLDist,
        DKD,
        DPU,
        DPS,
        XEKL,
        DHKD,
        DTOKD,
        TPKD,
        TPKDWithoutCE,
        SafeFullKL,
        TPKDWithoutProjection,
        CompensationOnly,
    )
}


@dataclass(frozen=True)
class MethodDescription:
    """What a person wants to know before choosing a method."""

    name: str
    summary: str
    needs: tuple[str, ...]
    """What a loop must provide under the default settings."""
    defaults: dict[str, Any]
    source: str
    reconstruction: str
    """What no public source fixes and we had to choose; empty where nothing is."""


def names() -> tuple[str, ...]:
    """The names of all objectives: the paper's ten methods, then the four controls of its ablation.

    Example:
        >>> names()[:3]
        ('ce', 'kd', 'kl-dist')
    """
    return tuple(_OBJECTIVES)


def create(name: str, **settings: Any) -> Objective:
    """An objective by name, with its own settings by keyword.

    Example:
        >>> create("kd", temperature=2.0)
        KD(temperature=2.0, ce_weight=1.0, kd_weight=1.0)
    """
    if name not in _OBJECTIVES:
        hint = did_you_mean(name, _OBJECTIVES)
        raise ValueError(f"name: expected one of {', '.join(_OBJECTIVES)}, got {name!r}{hint}")
    known = _settings(_OBJECTIVES[name])
    unknown = sorted(settings.keys() - set(known))
    if unknown:
        expected = f"expected some of {', '.join(known)}" if known else "it has none"
        raise ValueError(f"settings: objective {name!r}: {expected}, got {', '.join(unknown)}")
    return _OBJECTIVES[name](**settings)


def describe() -> tuple[MethodDescription, ...]:
    """Every objective in words, in the order of `names`.

    Example:
        >>> describe()[1].defaults
        {'temperature': 4.0, 'ce_weight': 1.0, 'kd_weight': 1.0}
    """
    return tuple(_describe(create(name)) for name in names())


def _describe(objective: Objective) -> MethodDescription:
    return MethodDescription(
        name=objective.name,
        summary=objective.summary,
        needs=tuple(sorted(objective.needs)),
        defaults={setting: getattr(objective, setting) for setting in _settings(type(objective))},
        source=objective.source,
        reconstruction=objective.reconstruction,
    )


def _settings(objective: type[Objective]) -> tuple[str, ...]:
    return tuple(setting.name for setting in fields(objective) if setting.init)  # type: ignore[arg-type]
