"""What the engine adds to a step: the cache, the monitor and checkpoints; `python -m benchmarks.training`."""

import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.timing import interleaved_seconds, paired_ratio

from tpkd.config.loading import resolve_config
from tpkd.config.schema import RunConfig
from tpkd.data.configured import load_data
from tpkd.models.preparation import preprocessing, student_preparation
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.recipes import cache_rows
from tpkd.training.checkpoint import Checkpoints
from tpkd.training.run import Run, assemble, start_accelerator
from tpkd.training.state import Progress, capture
from tpkd.training.step import take_step

BATCH = 64
MOST_TPKD = 1.02
"""A TPKD step that reads the cache may take this many times a CE step."""
MOST_MONITOR = 1.01
"""So many times a run without the monitor, at its default interval."""
MOST_CHECKPOINTS = 0.02
"""The share of a run at the default interval."""


@dataclass(frozen=True)
class Student:
    """A network and data of its kind, made up."""

    name: str
    num_classes: int
    config: dict[str, Any]


def write_images(root: Path, count: int, num_classes: int) -> None:
    generator = np.random.default_rng(0)
    parts = {"class_names": np.array([f"class {index}" for index in range(num_classes)])}
    for split in ("train", "test"):
        parts[f"{split}_images"] = generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        parts[f"{split}_labels"] = np.arange(count) % num_classes
    np.savez(root / "cifar100.npz", **parts)


def write_texts(root: Path, count: int, num_classes: int) -> None:
    words = [f"word{index}" for index in range(500)]
    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        rows = (
            {"text": " ".join(generator.choice(words, 30)), "label": f"class {row % num_classes:03d}"}
            for row in range(count)
        )
        (root / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def students(root: Path) -> list[Student]:
    """The two student sizes of the loss benchmarks."""
    write_images(root, 300, 100)
    write_texts(root, 300, 150)
    text = {"max_length": 32, "padding": "max_length"}
    return [
        Student(
            "BERT-Mini, 64 × 32 tokens, K = 150",
            150,
            {"data": {"name": f"jsonl:{root}"}, "student": {"model": "builtin:bert"}, "text": text},
        ),
        Student(
            "ResNet-20, 64 × 32 × 32 pixels, K = 100",
            100,
            {"data": {"name": "cifar100", "root": str(root)}, "student": {"model": "builtin:resnet20"}},
        ),
    ]


def configure(student: Student, root: Path, objective: str) -> RunConfig:
    return resolve_config(
        {
            **student.config,
            "output": str(root / "run"),
            "teacher": {"cache": str(root / f"cache-{student.num_classes}")},
            "objective": objective,
            "optimizer": {"name": "sgd", "learning_rate": 1e-4},
            "epochs": 1,
            "batch_size": BATCH,
        }
    )


def make_cache(config: RunConfig, num_classes: int) -> None:
    dataset = load_data(config, "train")
    preparation = student_preparation(config, dataset)
    recipe = CacheRecipe("random", dataset.fingerprint, preprocessing(dataset, preparation), None, num_classes)
    assert config.teacher is not None
    rows = cache_rows(dataset, preparation)
    build_cache(
        str(config.teacher.cache), rows, lambda inputs: {"logits": 3 * torch.randn(_rows(inputs), num_classes)}, recipe
    )


def _rows(inputs: Any) -> int:
    return len(inputs["input_ids"] if isinstance(inputs, dict) else inputs)


def make_run(config: RunConfig, root: Path) -> Run:
    return assemble(config, start_accelerator(config), root)


def checkpoint_seconds(run: Run, directory: Path) -> float:
    checkpoints = Checkpoints(directory, keep=2)
    taken = []
    for step in range(1, 8):
        start = time.perf_counter()
        groups, values = capture(run, Progress())
        checkpoints.save(step, groups, values)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def measure(student: Student, root: Path, seconds: float) -> list[tuple[str, float, float]]:
    """(what, measured, most) of one student."""
    make_cache(configure(student, root, "ce"), student.num_classes)
    runs = {name: make_run(configure(student, root, name), root) for name in ("ce", "tpkd")}
    samples = runs["ce"].batches[0]
    steps = {name: lambda run=run: take_step(run, 1, samples) for name, run in runs.items()}
    steps["tpkd, looking"] = lambda: take_step(runs["tpkd"], 1, samples, look=True)
    times = interleaved_seconds(steps, seconds=seconds)
    # The two differ by a thousandth, a step from the next by some hundredths: pairs, and many of them.
    ratio = paired_ratio(steps["tpkd"], steps["ce"], pairs=max(10, round(seconds)))
    config = runs["tpkd"].config
    look = 1 + (times["tpkd, looking"] / times["tpkd"] - 1) / config.monitor_every
    with tempfile.TemporaryDirectory() as directory:
        saving = checkpoint_seconds(runs["tpkd"], Path(directory)) / (config.checkpoints.every * times["tpkd"])
    return [
        (f"{student.name}: a TPKD step with cache over a CE step, ratio", ratio, MOST_TPKD),
        (f"{student.name}: a run with the monitor over one without, ratio", look, MOST_MONITOR),
        (f"{student.name}: checkpoints, share of a run", saving, MOST_CHECKPOINTS),
    ]


def rows(seconds: float = 30.0) -> list[tuple[str, float, float]]:
    """(what, measured, most) for each promise."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        return [row for student in students(root) for row in measure(student, root, seconds)]


def main() -> None:
    print("| what | measured | at most |\n|---|---|---|")
    for what, measured, most in rows():
        print(f"| {what} | {measured:.4f} | {most:.3f} |")


if __name__ == "__main__":
    main()
