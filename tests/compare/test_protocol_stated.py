"""What the paper's appendix states, beside the configurations that we ship for it."""

import pytest

from tpkd.compare import protocol
from tpkd.compare.protocol import CONFIGS, resolved_settings
from tpkd.config.loading import load_config
from tpkd.objectives import names
from tpkd.training.directory import flat_items

SHARED = {
    "limit": None,
    "evaluation.limit": None,
    "batch_size": 64,
    "micro_batch_size": 32,
    "selection": "last",
}
STATED = {
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
WEIGHT_DECAY = {"vision": {"kl-dist": 1e-4, "xe-kl": 1e-4}, "text": {}}
UNIT = {"temperature": 1.0}
HALF = {"beta": 0.5}
SETTINGS = {
    "kd": {"temperature": 4.0, "kd_weight": 1.0},
    "kl-dist": UNIT,
    "dkd": {"alpha": 1.0, "beta": 8.0, "temperature": 4.0},
    "dp-u": UNIT,
    "dp-s": UNIT,
    "xe-kl": UNIT,
    "dhkd": {"temperature": 2.0},
    "dto-kd": UNIT,
    "tpkd": HALF,
    "tpkd-no-ce": HALF,
    "safe-full-kl": HALF,
    "tpkd-no-projection": HALF,
    "compensation-only": HALF,
}
TEXT_SETTINGS = {
    "dkd": {"warmup_epochs": 2},
    "dto-kd": {"layer_features": "own-objective"},
}


def shipped(domain, objective="ce"):
    return load_config(CONFIGS / f"paper-{domain}.yaml", [("objective", objective)])


@pytest.mark.parametrize("domain", STATED)
def test_the_shipped_configuration_has_what_the_paper_states(domain):
    found = dict(flat_items("", shipped(domain).model_dump(mode="json")))
    stated = {**SHARED, **STATED[domain]}
    assert {key: found[key] for key in stated} == stated
    assert set(protocol.STATED[domain]) == {key for key in stated if not key.startswith("study.")}


@pytest.mark.parametrize("domain", STATED)
@pytest.mark.parametrize("objective", names())
def test_every_objective_has_the_settings_that_the_paper_states(domain, objective):
    config = shipped(domain, objective)
    stated = {**SETTINGS.get(objective, {}), **(TEXT_SETTINGS.get(objective, {}) if domain == "text" else {})}
    settings = resolved_settings(config)
    assert {name: settings[name] for name in stated} == stated
    decay = WEIGHT_DECAY[domain].get(objective, STATED[domain]["optimizer.weight_decay"])
    assert config.optimizer.weight_decay == decay
