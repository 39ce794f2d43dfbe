"""The protocol of the paper's appendix "Experimental protocols", and where a grid departs from it.

A grid has the paper's protocol if every setting that decides a number is that of the domain's shipped configuration:
what the appendix states, what it leaves open and that configuration chose, and the default of every other key. What may
differ is listed, with the reason.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tpkd.compare.record import PaperProtocol
from tpkd.config.loading import load_config
from tpkd.config.schema import RunConfig
from tpkd.objectives import describe
from tpkd.training.directory import flat_items

CONFIGS = Path(__file__).parent / "configs"
SEEDS = (42, 43, 44)
STATES = [20, 40, 60]
"""Epochs of the CE snapshots used by the mechanism studies."""
_DATA = {"vision": "cifar100", "text": "clinc150"}

_SHARED = (
    *("data.name", "limit", "evaluation.limit", "epochs", "batch_size", "micro_batch_size", "precision", "clip_norm"),
    *("student.weights", "student.head", "optimizer.name", "optimizer.learning_rate", "optimizer.weight_decay"),
    *("schedule.name", "selection"),
)
STATED = {
    "vision": (
        *(*_SHARED, "student.options.pretrained", "student.probe_c", "optimizer.momentum", "views.num_views"),
        *("views.pad", "views.flip", "views.size", "views.interpolation"),
    ),
    "text": (
        *(*_SHARED, "student.options.pooling", "text.max_length", "text.padding", "tf32"),
        *("optimizer.betas", "optimizer.eps", "schedule.warmup"),
    ),
}
"""The settings that the appendix states, beside those of `study`; the shipped configurations chose the rest."""
_CHOSEN_OF_STUDIES = ("study.seed", "study.blocking.splits")
_STATED_SETTINGS = {"kd": {"temperature", "kd_weight"}, "dkd": {"alpha", "beta", "temperature"}}
_STATED_OTHERWISE = {"temperature", "beta"}
_STATED_OF_TEXT = {"warmup_epochs", "layer_features"}

_ALSO: dict[str, Any] = {
    "study.learning_rate": 1e-4,
    "study.blocking.states": STATES,
    "study.exact_head.states": [STATES[0], STATES[-1]],
    "study.certificates.states": [STATES[0], STATES[-1]],
    "study.continuation.state": STATES[-1],
}
"""Explicit values with the same meaning as the default."""

_MODELS: dict[str, dict[str, tuple[str, str]]] = {
    "vision": {
        "student": ("pit_b_224", r"pit_b(_224)?(\.\w+)?"),
        "teacher": ("volo_d2_224", r"volo_d2(_224)?(\.\w+)?"),
    },
    "text": {
        "student": ("L-4_H-256 or bert-mini", r"(.*[_-])?l-4_h-256(_a-4)?|bert[_-]mini"),
        "teacher": ("bert-large or L-24_H-1024", r"bert[_-]large([_-](un)?cased)?|(.*[_-])?l-24_h-1024(_a-16)?"),
    },
}
"""The networks: their name in messages, and a pattern for the last part of the model name in lower case."""

FREE: dict[str, str] = {
    "output": "where results are kept",
    "data.root": "where the published files are",
    "student.model": "compared by the name of the network, wherever it is kept",
    "teacher.model": "compared by the name of the network, wherever it is kept",
    "student.probe_file": "where the fitted probe is kept",
    "teacher.weights": "which file holds the weights; that there are some is asked for",
    "teacher.cache": "where answers are kept; without a cache they are computed anew",
    "initial.cache": "where answers are kept; without a cache they are computed anew",
    "objective": "compared as resolved settings",
    "seed": "the seeds of a grid are compared as a whole",
    "methods": "already part of the configuration of each objective",
    "variants": "further methods, which the paper does not have",
    "workers": "prepares inputs in other processes",
    "evaluation.batch_size": "rows of a forward pass in evaluation mode",
    "evaluation.every": "further evaluations on the way; which student is the result is compared as `selection`",
    "checkpoints": "when the state of a run goes to disk",
    "log_every": "when a line is logged",
    "monitor_every": "when a batch is looked at",
    "tracking": "further copies of the log",
    "snapshots": "what is kept of a run; the studies look at CE's, whose states are compared",
    "snapshot_seeds": "which runs keep them",
}
"""Settings that do not affect results or are compared elsewhere, with the reason; a section covers all its keys."""

FREE_IN: dict[str, dict[str, str]] = {
    "vision": {"text": "images have none"},
    "text": {
        "views": "texts have none",
        "student.probe_c": "the head is random: no probe is fitted",
        "study": "the paper has mechanism studies of vision alone",
    },
}


def paper_protocol(configs: Mapping[str, RunConfig], seeds: Mapping[str, Sequence[int]]) -> PaperProtocol:
    """Which of the paper's two domains a grid belongs to, and every key that differs.

    Args:
        configs: the resolved configuration of each method; variants are not compared.
        seeds: the seeds of each objective.
    """
    data = next(iter(configs.values())).data.name
    domain = next((name for name, known in _DATA.items() if known == data), None)
    if domain is None:
        return PaperProtocol(None, (f"data.name: expected {' or '.join(_DATA.values())}, found {data}",))
    differences: list[str] = []
    found: dict[str, list[str]] = defaultdict(list)
    own = {name: config for name, config in configs.items() if config.objective.variant is None}
    for objective, config in own.items():  # a variant is not a method of the paper, beside which it may stand
        if tuple(seeds[objective]) != SEEDS:
            found[f"seeds: expected {list(SEEDS)}, found {list(seeds[objective])}"].append(objective)
        for line in _differences(objective, config, domain):
            found[line].append(objective)
    for line, owners in found.items():
        # A difference shared by all objectives is listed once.
        differences.append(line if len(owners) == len(own) else f"{', '.join(owners)}: {line}")
    return PaperProtocol(domain, tuple(differences))


def _differences(objective: str, config: RunConfig, domain: str) -> Iterator[str]:
    reference = _reference(domain, objective)
    expected, found = _decisive(reference, domain), _decisive(config, domain)
    for key in {**expected, **found}:
        if key in ("student.model", "teacher.model") or (config.teacher is None and key.partition(".")[0] == "teacher"):
            continue
        value, other = expected.get(key), found.get(key)
        if other != value and (key not in _ALSO or other != _ALSO[key]):
            stated = key in STATED[domain] or (key.startswith("study.") and key not in _CHOSEN_OF_STUDIES)
            yield _line(key, value, other, None if stated else domain)
    yield from _other_networks(config, domain)
    keeps = not config.snapshot_seeds or config.seed in config.snapshot_seeds
    if keeps and reference.snapshots and config.snapshots != reference.snapshots:
        yield f"snapshots: expected {list(reference.snapshots)}, found {list(config.snapshots)}"
    wanted, settings = resolved_settings(reference), resolved_settings(config)
    stated_settings = _STATED_SETTINGS.get(objective, _STATED_OTHERWISE)
    for name in {**wanted, **settings}:
        if settings.get(name) != wanted.get(name):
            stated = name in stated_settings or (domain == "text" and name in _STATED_OF_TEXT)
            yield _line(name, wanted.get(name), settings.get(name), None if stated else domain)


def _line(key: str, expected: Any, found: Any, chosen_by: str | None) -> str:
    """A difference; settings the appendix does not state refer to the shipped configuration."""
    reason = f" (not stated in the paper: as in configs/paper-{chosen_by}.yaml)" if chosen_by else ""
    return f"{key}: expected {expected}{reason}, found {found}"


def _other_networks(config: RunConfig, domain: str) -> Iterator[str]:
    teacher = config.teacher
    for owner, (said, pattern) in _MODELS[domain].items():
        section = config.student if owner == "student" else teacher
        name = section.model if section is not None else None
        last = re.split(r"[:/]", name.rstrip("/"))[-1].lower() if name is not None else ""
        if re.fullmatch(pattern, last) is None:
            yield f"{owner}.model: expected {said}, found {name}"
    if teacher is not None and teacher.model is not None and teacher.weights is None:
        yield "teacher.weights: expected those of a teacher trained on these data, found None"


@lru_cache
def _reference(domain: str, objective: str) -> RunConfig:
    """What the domain's shipped configuration says about an objective."""
    return load_config(CONFIGS / f"paper-{domain}.yaml", [("objective", objective)])


def _decisive(config: RunConfig, domain: str) -> dict[str, Any]:
    """The settings that affect results, as dotted keys; empty sections are left out."""
    free = {**FREE, **FREE_IN[domain]}.keys() - {"student.model", "teacher.model"}
    plain = flat_items("", config.model_dump(mode="json"))
    return {
        key: value
        for key, value in plain
        if value != {} and not any(key == name or key.startswith(f"{name}.") for name in free)
    }


def resolved_settings(config: RunConfig) -> dict[str, Any]:
    """The settings of a run's objective, including defaults."""
    defaults = {method.name: method.defaults for method in describe()}[config.objective.name]
    return {**defaults, **config.objective.settings}
