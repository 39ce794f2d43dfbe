"""A soft teacher and a CE student with dropout on some digits, with snapshots; and plain readings of what they keep."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from tpkd.config.loading import config_yaml, resolve_config
from tpkd.config.schema import RunConfig
from tpkd.data.loading import load_dataset
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.models.weights import load_weights
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.caching import build
from tpkd.training.loop import train

VIEWS = {"num_views": 8, "pad": 1, "scale": 16.0}
BASE = {
    "data": {"name": "digits"},
    "views": VIEWS,
    "limit": 500,
    "tensorboard": False,
    "monitor_every": 0,
    "device": "cpu",
    "batch_size": 64,
    "evaluation": {"limit": 150},
}
TEACHER = {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [32]}}


@dataclass(frozen=True)
class TrainedRun:
    config: RunConfig
    root: Path

    @property
    def directory(self) -> Path:
        return Path(self.config.directory)

    def changed(self, **overrides) -> RunConfig:
        return resolve_config(self.config.model_dump(mode="json"), [f"{k}={v}" for k, v in overrides.items()])

    def studied(self, *overrides: str) -> RunConfig:
        return resolve_config(self.config.model_dump(mode="json"), [f"study.{override}" for override in overrides])

    def student(self, epoch: int):
        student = self.config.student
        model = build_model(ModelSpec(student.model, num_classes=10, options=student.options))
        load_weights(model, self.directory / "snapshots" / f"epoch-{epoch:03d}.safetensors")
        return model.eval()

    def state(self, epoch: int) -> dict[str, dict[str, torch.Tensor]]:
        (directory,) = (self.directory / "snapshots" / f"epoch-{epoch:03d}").glob("step-*")
        return {path.stem: load_file(path) for path in directory.glob("*.safetensors")}

    def cached(self, ids, views) -> np.ndarray:
        return open_cache(self.root / "cache").read(np.asarray(ids), np.asarray(views)).double().numpy()

    def copy(self, target: Path, config: RunConfig) -> Path:
        """The run directory once more, tied to another configuration."""
        shutil.copytree(self.directory, target, ignore=shutil.ignore_patterns("studies"))
        (target / "config.yaml").write_text(config_yaml(config))
        return target


def raw_digits(split: str, ids):
    """Images and labels of some samples, found by their ids in the whole split."""
    whole = load_dataset("digits", split)
    place = {int(sample): position for position, sample in enumerate(whole.ids)}
    positions = [place[int(sample)] for sample in ids]
    return whole.inputs[positions], whole.labels[positions]


def train_runs(root: Path, *, hidden: int = 80, epochs: int = 10, snapshots=(2, 6, 10)) -> TrainedRun:
    """Train the teacher once and a CE student with snapshots; the teacher stops early, so that it stays unsure."""
    teacher = {"output": str(root / "teacher"), "student": TEACHER, "objective": "ce", "epochs": 12}
    teacher["optimizer"] = {"name": "sgd", "learning_rate": 0.05}
    train(resolve_config(BASE | teacher))
    student = {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [hidden], "dropout": 0.1}}
    config = resolve_config(
        BASE
        | {
            "output": str(root / f"{{objective}}-{hidden}"),
            "student": student,
            "teacher": TEACHER | {"weights": f"{root}/teacher/student.safetensors", "cache": f"{root}/cache"},
            "objective": "ce",
            "optimizer": {"name": "sgd", "learning_rate": 0.1, "weight_decay": 1e-3},
            "epochs": epochs,
            "snapshots": list(snapshots),
            "micro_batch_size": 32,
            "study": {"continuation": {"iterations": 12, "points": [0, 1, 4, 12]}, "certificates": {"batches": 4}},
        }
    )
    build(config)
    train(config)
    return TrainedRun(config, root)
