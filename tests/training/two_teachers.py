"""Runs of two teachers: that of `tiny`, and a second random one, each with a weight."""

import torch
from safetensors.torch import save_file

from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from training.tiny import TEACHER_OPTIONS, make_config, plain_config, teacher_weights


def second_weights(directory):
    """Weights of another teacher with opinions."""
    path = directory / "second.safetensors"
    if not path.exists():
        model = build_model(ModelSpec("builtin:mlp", num_classes=10, options=TEACHER_OPTIONS, seed=8))
        with torch.no_grad():
            model.classifier.weight.mul_(20)
        save_file(model.state_dict(), path)
    return path


def entry(weights, **changes):
    """One of the teachers."""
    return {"model": "builtin:mlp", "options": TEACHER_OPTIONS, "weights": str(weights), **changes}


def two_teachers(directory, overrides=(), teachers=None, **changes):
    """The run of `tiny`, taught by two networks at every step, the first of them with twice the weight."""
    weights = teacher_weights(directory), second_weights(directory)
    if teachers is None:
        teachers = [entry(weights[0], weight=2.0), entry(weights[1])]
    student = plain_config(directory)["student"] | {"layers": []}
    return make_config(directory, overrides, teacher=None, teachers=teachers, **{"student": student, **changes})


def one_teacher(directory, overrides=(), **changes):
    """The same run, taught by the first of them alone."""
    student = plain_config(directory)["student"] | {"layers": []}
    teacher = entry(teacher_weights(directory))
    return make_config(directory, overrides, teacher=teacher, **{"student": student, **changes})


def cached(directory, overrides=(), **changes):
    """The same run with a cache for each."""
    weights = teacher_weights(directory), second_weights(directory)
    teachers = [
        entry(weights[0], weight=2.0, cache=str(directory / "first-cache"), cache_dtype="float32"),
        entry(weights[1], cache=str(directory / "second-cache"), cache_dtype="float32"),
    ]
    return two_teachers(directory, overrides, teachers, **changes)
