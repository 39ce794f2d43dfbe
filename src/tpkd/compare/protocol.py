"""The protocol of the paper's appendix "Experimental protocols", and where a grid departs from it.

A grid has the paper's protocol if every setting that decides a number is that of the domain's shipped configuration:
what the appendix states, what it leaves open and that configuration chose, and the default of every other key. What may
differ is listed, with the reason.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tpkd.compare.record import PaperProtocol
from tpkd.config.loading import resolve_config
from tpkd.config.schema import RunConfig
from tpkd.objectives import describe
from tpkd.training.directory import flat_items

SEEDS = (42, 43, 44)
STATES = [20, 40, 60]
"""Epochs of the CE snapshots used by the mechanism studies."""

_SHARED: dict[str, Any] = {
    "limit": None,
    "evaluation.limit": None,
    "batch_size": 64,
    "micro_batch_size": 32,
}
_STATED: dict[str, dict[str, Any]] = {
    "vision": {
        "data.name": "cifar100",
        "student.options.pretrained": True,
        "student.weights": None,
        "student.head": "probe",
        "student.probe_c": 0.01,
        "views.num_views": 8,
        "views.pad": 4,
        "views.flip": True,
        "views.size": 224,
        "views.interpolation": "bicubic",
        "epochs": 60,
        "precision": "fp16",
        "optimizer.name": "sgd",
        "optimizer.learning_rate": 1e-4,
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 1e-3,
        "schedule.name": "constant",
        "clip_norm": None,
        "study.tolerance": 1e-12,
        "study.learning_rate": None,
        "study.blocking.states": [],
        "study.blocking.samples": 2000,
        "study.exact_head.states": [],
        "study.exact_head.batches": 32,
        "study.exact_head.batch_size": 64,
        "study.exact_head.step_size": 0.01,
        "study.certificates.states": [],
        "study.certificates.batches": 16,
        "study.certificates.batch_size": 64,
        "study.certificates.microbatch": 8,
        "study.certificates.rank_tolerance": 1e-10,
        "study.certificates.spectral_tolerance": 1e-12,
        "study.continuation.state": None,
        "study.continuation.iterations": 128,
        "study.continuation.observation": 2048,
        "study.continuation.points": [0, 1, 8, 32, 64, 128],
    },
    "text": {
        "data.name": "clinc150",
        "student.weights": None,
        "student.head": "random",
        "student.options.pooling": "pooler",
        "text.max_length": 128,
        "text.padding": "max_length",
        "epochs": 4,
        "precision": "fp32",
        "tf32": False,
        "optimizer.name": "adam-weight-decay",
        "optimizer.learning_rate": 3e-4,
        "optimizer.betas": [0.9, 0.999],
        "optimizer.eps": 1e-6,
        "optimizer.weight_decay": 0.01,
        "schedule.name": "warmup-linear",
        "schedule.warmup": 112,
        "clip_norm": 1.0,
    },
}
_CHOSEN: dict[str, dict[str, Any]] = {
    "vision": {
        "teacher.cache_dtype": "float32",
        "views.mean": [0.485, 0.456, 0.406],
        "views.std": [0.229, 0.224, 0.225],
    },
    "text": {
        "teacher.cache_dtype": "float32",
        "student.layers": [1, 2, 3, 4],
        "teacher.layers": [6, 12, 18, 24],
        "teacher.options.pooling": "pooler",
    },
}
"""What the shipped configuration chose where the paper states nothing; the rest that it leaves open is the default."""

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
    "workers": "prepares inputs in other processes",
    "evaluation.batch_size": "rows of a forward pass in evaluation mode",
    "evaluation.every": "further evaluations on the way; the result is the last epoch's",
    "checkpoints": "when the state of a run goes to disk",
    "log_every": "when a line is logged",
    "monitor_every": "when a batch is looked at",
    "tensorboard": "a second copy of the log",
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

_WEIGHT_DECAY: dict[str, dict[str, float]] = {"vision": {"kl-dist": 1e-4, "xe-kl": 1e-4}, "text": {}}
_UNIT: dict[str, Any] = {"temperature": 1.0}
_HALF: dict[str, Any] = {"beta": 0.5}
_SETTINGS: dict[str, dict[str, Any]] = {
    "kd": {"temperature": 4.0, "kd_weight": 1.0},
    "kl-dist": _UNIT,
    "dkd": {"alpha": 1.0, "beta": 8.0, "temperature": 4.0},
    "dp-u": _UNIT,
    "dp-s": _UNIT,
    "xe-kl": _UNIT,
    "dhkd": {"temperature": 2.0},
    "dto-kd": _UNIT,
    "tpkd": _HALF,
    "tpkd-no-ce": _HALF,
    "safe-full-kl": _HALF,
    "tpkd-no-projection": _HALF,
    "compensation-only": _HALF,
}
_TEXT_SETTINGS: dict[str, dict[str, Any]] = {
    "dkd": {"warmup_epochs": 2},
    "dto-kd": {"layer_features": "own-objective"},
}


def paper_protocol(configs: Mapping[str, RunConfig], seeds: Mapping[str, Sequence[int]]) -> PaperProtocol:
    """Which of the paper's two domains a grid belongs to, and every key that differs.

    Args:
        configs: the resolved configuration of each objective.
        seeds: the seeds of each objective.
    """
    data = next(iter(configs.values())).data.name
    domain = next((name for name, keys in _STATED.items() if keys["data.name"] == data), None)
    if domain is None:
        return PaperProtocol(None, (f"data.name: expected cifar100 or clinc150, found {data}",))
    differences: list[str] = []
    found: dict[str, list[str]] = defaultdict(list)
    for objective, config in configs.items():
        if tuple(seeds[objective]) != SEEDS:
            found[f"seeds: expected {list(SEEDS)}, found {list(seeds[objective])}"].append(objective)
        for line in _differences(objective, config, domain):
            found[line].append(objective)
    for line, owners in found.items():
        # A difference shared by all objectives is listed once.
        differences.append(line if len(owners) == len(configs) else f"{', '.join(owners)}: {line}")
    return PaperProtocol(domain, tuple(differences))


def _differences(objective: str, config: RunConfig, domain: str) -> Iterator[str]:
    stated, found = {**_SHARED, **_STATED[domain]}, _decisive(config, domain)
    expected = dict(_reference(domain))
    special = _WEIGHT_DECAY[domain].get(objective)
    if special is not None:
        expected["optimizer.weight_decay"] = special
    for key in {**stated, **expected, **found}:
        if key in ("student.model", "teacher.model") or (config.teacher is None and key.startswith("teacher")):
            continue
        value, other = expected.get(key), found.get(key)
        if other != value and (key not in _ALSO or other != _ALSO[key]):
            yield _line(key, value, other, domain if key not in stated else None)
    yield from _other_networks(config, domain)
    keeps = not config.snapshot_seeds or config.seed in config.snapshot_seeds
    if keeps and (objective, domain) == ("ce", "vision") and list(config.snapshots) != STATES:
        yield f"snapshots: expected {STATES}, found {list(config.snapshots)}"
    defaults = {method.name: method.defaults for method in describe()}[objective]
    own = {**_SETTINGS.get(objective, {}), **(_TEXT_SETTINGS.get(objective, {}) if domain == "text" else {})}
    settings = resolved_settings(config)
    for name in {**own, **defaults, **settings}:
        wanted = own.get(name, defaults.get(name))
        if settings.get(name) != wanted:
            yield _line(name, wanted, settings.get(name), domain if name not in own else None)


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
def _reference(domain: str) -> Mapping[str, Any]:
    """Every decisive key of a domain's shipped configuration, from the tables above and the defaults."""
    networks = {"student.model": "-", "teacher.model": "-", "output": "-", "objective.name": "ce"}
    plain: dict[str, Any] = {}
    for key, value in {**networks, **_SHARED, **_STATED[domain], **_CHOSEN[domain]}.items():
        *sections, last = key.split(".")
        place = plain
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return _decisive(resolve_config(plain), domain)


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
