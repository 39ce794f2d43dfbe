"""Ten-line modules and batches for the tests of the Lightning drop-in, and one quiet way to fit them."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from lightning.pytorch import Callback, Trainer
from torch import nn
from torch.nn.functional import one_hot
from torch.utils.data import DataLoader

from tpkd.integrations.lightning import DistillationModule
from tpkd.objectives import Batch, create, names

CLASSES, WIDTH = 5, 6
SEPARABLE = tuple(name for name in names() if create(name).needs <= {"labels", "teacher_logits", "epoch"})
QUIET = {
    "accelerator": "cpu",
    "devices": 1,
    "max_epochs": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def network(seed, hidden=16):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, hidden), nn.Tanh(), nn.Linear(hidden, CLASSES))


def data(size=64, ignored=0.4, seed=3):
    """Inputs and labels; the share of ignored ones grows along the batch, so that no two parts hold as many."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (size,), generator=generator)
    drawn = torch.rand(size, generator=generator)
    labels[drawn < 2 * ignored * torch.arange(size) / size] = -100
    return 2 * torch.randn(size, WIDTH, generator=generator), labels


def soft_data(size=64, ignored=0.4, seed=3):
    """The same inputs with mixtures of two labels, all zero where a label is ignored."""
    inputs, labels = data(size, ignored, seed)
    weight = torch.rand(size, 1, generator=torch.Generator().manual_seed(seed))
    first, second = (one_hot((labels.clamp(min=0) + shift) % CLASSES, CLASSES) for shift in (0, 2))
    return inputs, (weight * first + (1 - weight) * second) * (labels != -100).unsqueeze(-1)


class Student(DistillationModule):
    def __init__(self, seed=0, learning_rate=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = network(seed)

    def training_step(self, batch, batch_idx):
        inputs, labels, *ids = batch
        return self.distillation_loss(self.net(inputs), labels, inputs=inputs, sample_ids=ids[0] if ids else None)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.learning_rate)


class KeepGradients(Callback):
    """The gradients each step is taken with."""

    def __init__(self):
        self.steps = []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        named = pl_module.named_parameters()
        self.steps.append({name: each.grad.clone() for name, each in named if each.grad is not None})


def fit(module, batches, callbacks=(), **settings):
    """The gradients of every step."""
    kept = KeepGradients()
    trainer = Trainer(**QUIET | {"callbacks": [kept, *callbacks]} | settings)
    trainer.fit(module, train_dataloaders=DataLoader(batches, batch_size=None))
    return kept.steps


def own_gradients(module, teacher, inputs, labels, objective):
    """Plain PyTorch on the whole batch: one forward, one backward."""
    net = network(module.hparams.seed).to(inputs.dtype)
    with torch.no_grad():
        teacher_logits = teacher(inputs)
    batch = Batch(student_logits=net(inputs), teacher_logits=teacher_logits, labels=labels, epoch=1)
    sum(objective.losses(batch).values()).backward()
    return {f"net.{name}": each.grad for name, each in net.named_parameters()}


def assert_close(found, expected, tolerance=1e-6):
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=tolerance)


def run_script(name, directory, *more):
    """A script beside this file, in a process of its own that finds the tests' modules."""
    here = Path(__file__).resolve()
    command = [sys.executable, here.with_name(name), directory, *more]
    paths = [str(here.parents[2]), os.environ.get("PYTHONPATH", "")]
    settings = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=settings)
