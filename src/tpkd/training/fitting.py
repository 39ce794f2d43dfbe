"""Whether an objective takes what a run has for it: labels or none, mixed images, teachers whole, cut or several."""

from tpkd.config.loading import ConfigError
from tpkd.config.schema import RunConfig
from tpkd.objectives import Objective, describe
from tpkd.teacher.several import SeveralTeachers
from tpkd.teacher.teacher import CachedTeacher, Teacher

_WITHOUT_MIXING = "set views.mixup and views.cutmix to 0"


def check_labelled(config: RunConfig, objective: Objective) -> None:
    """Refuse training samples without labels where the objective needs them.

    Raises:
        ConfigError: names the objectives that need none.
    """
    if not config.data.unlabelled or "labels" not in objective.needs:
        return
    others = [method.name for method in describe() if "labels" not in method.needs]
    problem = f"objective {objective.name!r} learns from labels"
    raise ConfigError(f"data.unlabelled: expected false: {problem}; objectives that need none: {', '.join(others)}")


def kept_classes(teacher: Teacher | None) -> int | None:
    """How many classes per row a truncated cache has kept; None for every other teacher."""
    return getattr(teacher.about, "top_k", None) if isinstance(teacher, CachedTeacher) else None


def check_truncated(config: RunConfig, objective: Objective, teacher: Teacher | None) -> None:
    """Refuse a truncated teacher where the objective or the labels need all of its classes.

    Raises:
        ConfigError: says which, and what to do.
    """
    kept = kept_classes(teacher)
    if kept is None:
        return
    found = f"found the top {kept} of each answer"
    way_out = "build the cache without teacher.top_k"
    if "teacher_logits" in objective.needs and not objective.takes_top_k:
        problem = f"objective {objective.name!r} with these settings does not take a truncated teacher"
        other = objective.top_k_condition or "choose an objective that does, such as tpkd"
        raise ConfigError(f"teacher.cache: expected all classes, {found}: {problem}; {way_out}, or {other}")
    if config.views.mixes:
        problem = "a truncated teacher goes with one label per image, and a mixed image has two"
        raise ConfigError(f"teacher.cache: expected all classes, {found}: {problem}; {way_out}, or {_WITHOUT_MIXING}")


def check_several(objective: Objective, teacher: Teacher | None) -> None:
    """Refuse several teachers where the objective learns from none of their averages.

    Raises:
        ConfigError: says why, and what to do.
    """
    if not isinstance(teacher, SeveralTeachers) or "teacher_logits" not in objective.needs:
        return
    if objective.teacher_average is None:
        problem = f"objective {objective.name!r} with these settings learns from no average of them"
        other = objective.average_condition or "choose an objective that does, such as tpkd or kd"
        found = f"expected one teacher, found {len(teacher.members)}"
        raise ConfigError(f"teachers: {found}: {problem}; keep one of them, or {other}")


def check_mixed(config: RunConfig, objective: Objective) -> None:
    """Refuse mixed images where the objective takes no soft labels, or needs what a cache cannot say about them.

    Raises:
        ConfigError: says which, and what to do.
    """
    if not config.views.mixes:
        return
    key, alpha = ("views.mixup", config.views.mixup) if config.views.mixup else ("views.cutmix", config.views.cutmix)
    if not objective.takes_soft_labels:
        problem = f"mixed images have soft labels, which objective {objective.name!r} does not take"
        other = "or choose an objective that does, such as ce, kd or tpkd"
        raise ConfigError(f"{key}: expected 0, found {alpha}: {problem}; {_WITHOUT_MIXING}, {other}")
    cached = any(teacher.cache is not None for _, teacher in config.named_teachers)
    if "layer_features" in objective.needs and cached:
        problem = f"objective {objective.name!r} compares layers, whose features in a cache are those of unmixed images"
        raise ConfigError(f"teacher.cache: expected none with {key}: {problem}; leave it out, or {_WITHOUT_MIXING}")
    if "initial_logits" in objective.needs and config.initial.cache is not None:
        problem = "the answers in it are to unmixed images"
        raise ConfigError(f"initial.cache: expected none with {key}: {problem}; leave it out, or {_WITHOUT_MIXING}")
