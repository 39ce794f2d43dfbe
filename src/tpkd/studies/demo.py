"""A teacher and three students on scikit-learn's digits: the whole idea on a laptop, without a download."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tpkd.data import load_dataset
from tpkd.files import InputError, publish
from tpkd.objectives import Batch, Objective, create

SEED = 42
BATCH_SIZE = 64
TEACHER_EPOCHS = 12
STUDENT_EPOCHS = 60
METHODS = ("ce", "kd", "tpkd")

OnEpoch = Callable[[str, int, int], None]
"""Called after every epoch with the model's name, the epoch and the number of epochs."""


@dataclass(frozen=True)
class Digits:
    """The embedded data set, split once into training and held-out examples."""

    train_inputs: Tensor
    train_labels: Tensor
    held_out_inputs: Tensor
    held_out_labels: Tensor


@dataclass(frozen=True)
class DemoResult:
    """Held-out logits of the teacher and of every student, by method."""

    labels: Tensor
    teacher_logits: Tensor
    student_logits: dict[str, Tensor]

    def accuracy(self, logits: Tensor) -> float:
        """The share of held-out examples whose largest logit is the label's."""
        return (logits.argmax(-1) == self.labels).double().mean().item()


@dataclass(frozen=True)
class DemoFiles:
    """What the demo leaves behind; `tpkd diagnose` takes these files as it takes anybody's."""

    students: tuple[Path, ...]
    teacher: Path
    labels: Path
    page: Path


def run_demo(on_epoch: OnEpoch, *, teacher_epochs: int = TEACHER_EPOCHS, epochs: int = STUDENT_EPOCHS) -> DemoResult:
    """Train a teacher, then one student for each method from the same start on the same batches."""
    digits = load_digits()
    teacher = multilayer_perceptron((64, 128, 128, 10), seed=SEED)
    train("teacher", teacher, digits, create("ce"), None, teacher_epochs, on_epoch)
    teacher_logits = predict(teacher, digits.train_inputs)
    students = {}
    for method in METHODS:
        student = multilayer_perceptron((64, 32, 10), seed=SEED + 1)
        train(method, student, digits, create(method), teacher_logits, epochs, on_epoch)
        students[method] = predict(student, digits.held_out_inputs)
    return DemoResult(digits.held_out_labels, predict(teacher, digits.held_out_inputs), students)


def load_digits() -> Digits:
    """1,797 images of 8 x 8 pixels in ten classes; two fifths are held out, the same number from every class."""
    parts = [load_dataset("digits", split) for split in ("train", "test")]
    train_inputs, held_out_inputs = (
        torch.from_numpy(np.asarray(part.inputs) / 16).float().flatten(1) for part in parts
    )
    train_labels, held_out_labels = (torch.from_numpy(part.labels) for part in parts)
    return Digits(train_inputs, train_labels, held_out_inputs, held_out_labels)


def multilayer_perceptron(sizes: tuple[int, ...], *, seed: int) -> nn.Sequential:
    """Linear layers with ReLU between them; the same seed gives the same weights, whatever was drawn before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for wide_in, wide_out in pairwise(sizes):
            layers += [nn.Linear(wide_in, wide_out), nn.ReLU()]
        return nn.Sequential(*layers[:-1])


def train(
    name: str,
    model: nn.Module,
    digits: Digits,
    objective: Objective,
    teacher_logits: Tensor | None,
    epochs: int,
    on_epoch: OnEpoch,
) -> None:
    """An ordinary training loop: what differs between the methods is the objective alone."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    order = torch.Generator().manual_seed(SEED)
    for epoch in range(1, epochs + 1):
        for rows in torch.split(torch.randperm(len(digits.train_labels), generator=order), BATCH_SIZE):
            batch = Batch(
                student_logits=model(digits.train_inputs[rows]),
                labels=digits.train_labels[rows],
                teacher_logits=None if teacher_logits is None else teacher_logits[rows],
                epoch=epoch,
                num_epochs=epochs,
            )
            optimizer.zero_grad()
            torch.autograd.backward(list(objective.losses(batch).values()))
            optimizer.step()
        on_epoch(name, epoch, epochs)


@torch.no_grad()
def predict(model: nn.Module, inputs: Tensor) -> Tensor:
    """Logits of every input."""
    logits: Tensor = model(inputs)
    return logits


def demo_files(directory: Path) -> DemoFiles:
    """The paths of the demo's results; a directory that holds something else is left alone."""
    students = tuple(directory / f"student-{method}.npy" for method in METHODS)
    files = DemoFiles(students, directory / "teacher.npy", directory / "labels.npy", directory / "diagnosis.html")
    ours = {path.name for path in (*files.students, files.teacher, files.labels, files.page)}
    if directory.exists() and (not directory.is_dir() or any(path.name not in ours for path in directory.iterdir())):
        raise InputError(f"{directory}: expected a new directory or one that an earlier demo made, found other files")
    return files


def write_logits(result: DemoResult, files: DemoFiles) -> None:
    """Write the held-out logits and labels."""
    files.labels.parent.mkdir(parents=True, exist_ok=True)
    arrays = dict(zip(files.students, result.student_logits.values(), strict=True))
    arrays |= {files.teacher: result.teacher_logits, files.labels: result.labels}
    for path, array in arrays.items():
        with publish(path) as file:
            np.save(file, array.numpy())
