"""A run small enough to repeat a hundred times: a slice of the digits, an MLP student and a random MLP teacher."""

import torch
from safetensors.torch import save_file

from tpkd.config.loading import resolve_config
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.objectives import create, names
from tpkd.teacher import caching

TEACHER_OPTIONS = {"input_size": 64, "hidden": [24, 24]}
ALIGNED = {"preset": "imagenet-release", "align": True}
SETTINGS = {"dkd": {"warmup_epochs": 2}, "dhkd": {"preset": "imagenet-release"}}
SEPARABLE = {name: SETTINGS.get(name, {}) for name in names() if create(name, **SETTINGS.get(name, {})).separable}


def plain_config(directory, **changes):
    """The configuration as plain data; keyword arguments replace top-level keys."""
    return {
        "output": str(directory / "{objective}-{seed}"),
        "data": {"name": "digits"},
        "limit": 150,
        "views": {"num_views": 8, "pad": 1, "scale": 16},
        "student": {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [16]}, "layers": [1]},
        "teacher": {
            "model": "builtin:mlp",
            "options": TEACHER_OPTIONS,
            "weights": str(teacher_weights(directory)),
            "layers": [2],
            "cache": str(directory / "cache"),
        },
        "objective": "tpkd",
        "optimizer": {"name": "sgd", "learning_rate": 0.1, "weight_decay": 0.001},
        "epochs": 3,
        "batch_size": 32,
        "micro_batch_size": 16,
        "checkpoints": {"every": 4, "keep": 2},
        "log_every": 3,
        "monitor_every": 5,
        "evaluation": {"limit": 100},
        "tensorboard": False,
        "device": "cpu",
        **changes,
    }


def teacher_weights(directory):
    """Weights of a teacher with opinions: a random network whose last layer is ten times as loud."""
    path = directory / "teacher.safetensors"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        model = build_model(ModelSpec("builtin:mlp", num_classes=10, options=TEACHER_OPTIONS, seed=7))
        with torch.no_grad():
            model.classifier.weight.mul_(10)
        save_file(model.state_dict(), path)
    return path


def make_config(directory, overrides=(), **changes):
    return resolve_config(plain_config(directory, **changes), overrides)


def with_cache(directory, overrides=(), **changes):
    """The configuration, and the cache that it names."""
    config = make_config(directory, overrides, **changes)
    caching.build(config)
    return config


def online(config):
    """The same run with a teacher that answers at every step."""
    return config.model_copy(update={"teacher": config.teacher.model_copy(update={"cache": None})})
