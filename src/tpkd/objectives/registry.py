"""Every objective by name, for configs, comparisons and `tpkd methods`: ours, and those of other packages."""

import importlib
import inspect
import pkgutil
import re
import warnings
from dataclasses import MISSING, dataclass, field, fields
from importlib.metadata import entry_points
from typing import Any, TypeVar, dataclass_transform

import tpkd.objectives
from tpkd.errors import did_you_mean
from tpkd.objectives.base import BATCH_NEEDS, LOOP_NEEDS, Objective, PaperAccuracy, TeacherAverage

GROUP = "tpkd.objectives"
"""The entry points of other packages, each a module or a class that registers itself when it is imported."""
_ORDER = (
    *("ce", "kd", "kl-dist", "dkd", "dp-u", "dp-s", "xe-kl", "dhkd", "dto-kd", "tpkd"),
    *("tpkd-no-ce", "safe-full-kl", "tpkd-no-projection", "compensation-only"),
)
"""As in the paper's tables; others follow as they registered."""
_WORDS = ("name", "title", "summary", "source")

_registered: dict[str, type[Objective]] = {}
_loaded: set[str] = set()

AnyObjective = TypeVar("AnyObjective", bound=type[Objective])


@dataclass(frozen=True)
class MethodDescription:
    """What a person wants to know before choosing a method, and what tables and charts show of it."""

    name: str
    title: str
    summary: str
    needs: tuple[str, ...]
    """What a loop must provide under the default settings."""
    defaults: dict[str, Any]
    source: str
    reconstruction: str
    """What no public source fixes and we had to choose; empty where nothing is."""
    settings_note: str
    """Whose settings the defaults are, and which others are worth a trial; empty where there is nothing to say."""
    takes_soft_labels: bool
    takes_top_k: bool
    """Whether the teacher may be truncated, under the default settings."""
    teacher_average: TeacherAverage | None
    """Which average of several teachers it learns from, under the default settings; None where it refuses several."""
    control: bool
    ablation: tuple[str, str] | None
    paper_accuracy: PaperAccuracy | None


@dataclass_transform(field_specifiers=(field,))
def register(objective: AnyObjective) -> AnyObjective:
    """Make a class an objective that every command knows by its name; a decorator.

    The annotated attributes of the class are its settings: it becomes a dataclass, unless it is one.

    Raises:
        ValueError: the name is taken or none, an attribute or a default is missing, or `needs` names what no loop has.

    Example:
        >>> from tpkd.objectives import KD
        >>> @register
        ... class Other(KD):
        ...     pass
        Traceback (most recent call last):
        ValueError: name: 'kd' is taken by tpkd.objectives.kd.KD: expected another for tpkd.objectives.registry.Other
    """
    here = _place(objective)
    if missing := [word for word in _WORDS if not isinstance(getattr(objective, word, None), str)]:
        raise ValueError(f"{here}: expected class attributes {', '.join(_WORDS)}, found no {', '.join(missing)}")
    name = objective.name
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"name: expected lower-case words joined by '-', found {name!r} in {here}")
    # The same class twice: its module was reloaded, or a notebook cell was run again.
    if name in _registered and _place(_registered[name]) != here:
        raise ValueError(f"name: {name!r} is taken by {_place(_registered[name])}: expected another for {here}")
    if inspect.isabstract(objective):
        raise ValueError(f"{here}: expected methods {', '.join(sorted(objective.__abstractmethods__))}, found none")
    if "__dataclass_params__" not in vars(objective):
        dataclass(objective)  # in place
    if bare := _settings(objective, without_default=True):
        raise ValueError(f"{here}: expected a default of every setting, found none of {', '.join(bare)}")
    if unknown := sorted(objective().needs - (BATCH_NEEDS | LOOP_NEEDS)):
        expected = ", ".join(sorted(BATCH_NEEDS | LOOP_NEEDS))
        raise ValueError(f"needs: expected some of {expected}, found {', '.join(unknown)} in {here}")
    _registered[name] = objective
    return objective


def names() -> tuple[str, ...]:
    """The names of all objectives: the paper's ten methods, the four controls of its ablation, then all others.

    Example:
        >>> names()[:3]
        ('ce', 'kd', 'kl-dist')
    """
    _load_others()
    return tuple(sorted(_registered, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)))


def create(name: str, **settings: Any) -> Objective:
    """An objective by name, with its own settings by keyword.

    Example:
        >>> create("kd", temperature=2.0)
        KD(temperature=2.0, ce_weight=1.0, kd_weight=1.0)
    """
    if name not in _registered and name not in (known := names()):
        raise ValueError(f"name: expected one of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}")
    objective = _registered[name]
    known = _settings(objective)
    unknown = sorted(settings.keys() - set(known))
    if unknown:
        expected = f"expected some of {', '.join(known)}" if known else "it has none"
        raise ValueError(f"settings: objective {name!r}: {expected}, got {', '.join(unknown)}")
    return objective(**settings)


def describe() -> tuple[MethodDescription, ...]:
    """Every objective in words, in the order of `names`.

    Example:
        >>> describe()[1].defaults
        {'temperature': 4.0, 'ce_weight': 1.0, 'kd_weight': 1.0}
    """
    return tuple(_describe(create(name)) for name in names())


def _describe(objective: Objective) -> MethodDescription:
    computed: dict[str, Any] = {
        "needs": tuple(sorted(objective.needs)),
        "defaults": {setting: getattr(objective, setting) for setting in _settings(type(objective))},
    }
    said = (field.name for field in fields(MethodDescription) if field.name not in computed)
    return MethodDescription(**computed, **{name: getattr(objective, name) for name in said})


def _settings(objective: type[Objective], *, without_default: bool = False) -> tuple[str, ...]:
    return tuple(
        setting.name
        for setting in fields(objective)  # type: ignore[arg-type]
        if setting.init and (not without_default or setting.default is setting.default_factory is MISSING)
    )


def _place(objective: type[Objective]) -> str:
    return f"{objective.__module__}.{objective.__qualname__}"


def _load_others() -> None:
    """Import every file of this folder, then what other packages announce; one that fails is named and left out."""
    if _loaded:
        return
    _loaded.add(GROUP)  # first, because a plug-in may itself ask for names
    for module in pkgutil.iter_modules(tpkd.objectives.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{tpkd.objectives.__name__}.{module.name}")
    for entry in entry_points(group=GROUP):
        try:
            found = entry.load()
            if isinstance(found, type) and issubclass(found, Objective):
                register(found)
        except Exception as error:  # a broken plug-in must not break tpkd
            problem = " ".join(f"{type(error).__name__}: {error}".split())
            warnings.warn(f"objective {entry.name!r} ({entry.value}) is left out: {problem}", stacklevel=3)
