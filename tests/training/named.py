"""A run on images of three named classes, small enough to train in a second."""

import json
import struct

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from tpkd.config.loading import resolve_config
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec

NAMES = ("cat", "dog", "horse")
OPTIONS = {"input_size": 75, "hidden": [8]}


def write_images(root, names=NAMES):
    """Five by five pixels of noise: six of every class to train on, two to test on."""
    for split, count in (("train", 6), ("test", 2)):
        for label, name in enumerate(names):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = np.random.default_rng([label, number]).integers(0, 256, (5, 5, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{number}.png")
    return root


def write_weights(path, names, num_classes=3):
    """Weights of a network with opinions; `names` go into the metadata, None leaves them out."""
    model = build_model(ModelSpec("builtin:mlp", num_classes=num_classes, options=OPTIONS, seed=7))
    with torch.no_grad():
        model.classifier.weight.mul_(10)
    save_file(model.state_dict(), path, metadata=None if names is None else {"class_names": json.dumps(names)})
    return path


def config_of(directory, overrides=(), **changes):
    return resolve_config(plain_config(directory, **changes), overrides)


def plain_config(directory, **changes):
    return {
        "output": str(directory / "runs" / "{objective}-{seed}"),
        "data": {"name": f"folder:{directory / 'photos'}"},
        "student": {"model": "builtin:mlp", "options": OPTIONS},
        "objective": "ce",
        "optimizer": {"name": "sgd", "learning_rate": 0.1},
        "epochs": 1,
        "batch_size": 9,
        "snapshots": [1],
        "checkpoints": {"every": 1, "keep": 1},
        "tensorboard": False,
        "device": "cpu",
        **changes,
    }


def taught_by(weights, **more):
    return {"model": "builtin:mlp", "options": OPTIONS, "weights": str(weights), **more}


def recorded_names(path):
    """The class names in the header of a safetensors file, read by hand."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    text = json.loads(data[8 : 8 + size]).get("__metadata__", {}).get("class_names")
    return None if text is None else tuple(json.loads(text))
