"""What the paper's appendix "Experimental protocols" fixes, and where a grid departs from it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tpkd.config import RunConfig
from tpkd.objectives import describe
from tpkd.records.comparison import PaperProtocol

SEEDS = (42, 43, 44)

_SHARED: dict[str, Any] = {
    "limit": None,
    "evaluation.limit": None,
    "batch_size": 64,
    "micro_batch_size": 32,
}
_DOMAINS: dict[str, dict[str, Any]] = {
    "vision": {
        "data.name": "cifar100",
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
    },
    "text": {
        "data.name": "clinc150",
        "student.head": "random",
        "student.options.pooling": "pooler",
        "text.max_length": 128,
        "text.padding": "max_length",
        "epochs": 4,
        "precision": "fp32",
        "tf32": False,
        "optimizer.name": "adam-weight-decay",
        "optimizer.learning_rate": 3e-4,
        "optimizer.eps": 1e-6,
        "optimizer.weight_decay": 0.01,
        "schedule.name": "warmup-linear",
        "schedule.warmup": 112,
        "clip_norm": 1.0,
    },
}
_MODELS: dict[str, dict[str, tuple[str, ...]]] = {
    "vision": {"student": ("pit_b",), "teacher": ("volo_d2",)},
    "text": {"student": ("L-4_H-256", "bert-mini"), "teacher": ("bert-large", "L-24_H-1024")},
}
"""What the name of a model must contain, one of each."""

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


def paper_protocol(configs: Mapping[str, RunConfig], seeds: Mapping[str, Sequence[int]]) -> PaperProtocol:
    """Which of the paper's two domains a grid belongs to, and every key that is not as there.

    Args:
        configs: the resolved configuration of each objective.
        seeds: of each objective.
    """
    data = next(iter(configs.values())).data.name
    domain = next((name for name, keys in _DOMAINS.items() if keys["data.name"] == data), None)
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
        # What all objectives share is said once.
        differences.append(line if len(owners) == len(configs) else f"{', '.join(owners)}: {line}")
    return PaperProtocol(domain, tuple(differences))


def _differences(objective: str, config: RunConfig, domain: str) -> Iterator[str]:
    plain = config.model_dump(mode="json")
    expected = {**_SHARED, **_DOMAINS[domain]}
    special = _WEIGHT_DECAY[domain].get(objective)
    if special is not None:
        expected["optimizer.weight_decay"] = special
    for key, value in expected.items():
        found = _look_up(plain, key)
        if found != value:
            yield f"{key}: expected {value}, found {found}"
    for owner, parts in _MODELS[domain].items():
        name = _look_up(plain, f"{owner}.model")
        if not any(part.lower() in str(name).lower() for part in parts):
            yield f"{owner}.model: expected a name with {' or '.join(parts)}, found {name}"
    settings = resolved_settings(config)
    warmup: dict[str, Any] = {"warmup_epochs": 2} if (objective, domain) == ("dkd", "text") else {}
    for name, value in {**_SETTINGS.get(objective, {}), **warmup}.items():
        if settings.get(name) != value:
            yield f"{name}: expected {value}, found {settings.get(name)}"


def resolved_settings(config: RunConfig) -> dict[str, Any]:
    """The settings of a run's objective, its defaults included."""
    defaults = {method.name: method.defaults for method in describe()}[config.objective.name]
    return {**defaults, **config.objective.settings}


def _look_up(plain: Any, key: str) -> Any:
    for part in key.split("."):
        plain = plain.get(part) if isinstance(plain, dict) else None
    return plain
