"""The format `hf` for timm students: a folder that `timm.create_model("local-dir:FOLDER", pretrained=True)` loads."""

import json
from pathlib import Path
from typing import Any

import torch

from tpkd.errors import InputError, extra, reason, shortened
from tpkd.files import write_file
from tpkd.models.vision import TimmClassifier
from tpkd.models.weights import save_weights
from tpkd.student.checks import check_same_logits
from tpkd.student.loading import Student

WEIGHTS_NAME = "model.safetensors"
CONFIG_NAME = "config.json"
TOLERANCE = 1e-5


def write_timm(student: Student, folder: Path) -> list[str]:
    """Write `model.safetensors` and timm's `config.json`; loaded again and compared before it is published.

    Returns:
        Notes for the model card.

    Raises:
        InputError: timm has no network of this name without the auxiliary head that the run has removed.
        MismatchError: timm computes other logits.
    """
    with extra("vision"):
        import timm
    assert isinstance(student.module, TimmClassifier)
    network: Any = student.module.network
    save_weights(network, folder / WEIGHTS_NAME, student.class_names)
    config = _config(student, network)
    write_file(folder / CONFIG_NAME, json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    try:
        loaded = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    except RuntimeError as error:  # of a network whose auxiliary head the run has removed
        raise InputError(
            f"{student.recipe.model}: timm does not load it: {shortened(reason(error))}; use onnx or safetensors"
        ) from error
    inputs = torch.rand(2, *config["pretrained_cfg"]["input_size"], generator=torch.Generator().manual_seed(0))
    (expected,) = student.logits(iter([inputs]))
    with torch.no_grad():
        found = loaded(inputs)
    check_same_logits(found, expected, tolerance=TOLERANCE, where="timm")
    return [
        "Load it with `timm.create_model('local-dir:FOLDER', pretrained=True)`; "
        "`timm.data.resolve_model_data_config` gives its preprocessing."
    ]


def _config(student: Student, network: Any) -> dict[str, Any]:
    """The keys that timm reads from a folder."""
    views, published = student.recipe.views, network.pretrained_cfg
    channels, *sides = published["input_size"]
    sides = [views.size] * 2 if views.size is not None else sides
    # timm divides bytes by 255 before it normalises them.
    factor = views.scale / 255
    mean, std = (_per_channel(values, channels, factor) for values in (views.mean, views.std))
    used = ("first_conv", "classifier", "pool_size")
    return {
        "architecture": published["architecture"],
        "num_classes": len(student.class_names),
        "num_features": network.num_features,
        "label_names": list(student.class_names),
        "pretrained_cfg": {
            **{key: published[key] for key in used if published.get(key) is not None},
            "input_size": [channels, *sides],
            "interpolation": views.interpolation,
            "crop_pct": 1.0,
            "crop_mode": "center",
            "mean": mean,
            "std": std,
        },
    }


def _per_channel(values: tuple[float, ...], channels: int, factor: float) -> list[float]:
    return [value * factor for value in (values if len(values) == channels else values * channels)]
