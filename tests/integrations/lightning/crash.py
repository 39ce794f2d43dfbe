"""Fit with a checkpoint an epoch, and die in the middle of one where asked to: `python crash.py DIRECTORY`."""

import os
import signal
import sys
from pathlib import Path

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from integrations.lightning.tiny import QUIET, Student, data, network

EPOCHS, FATAL_STEP = 3, 5


class Die(Callback):
    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == FATAL_STEP:
            os.kill(os.getpid(), signal.SIGKILL)


def run(directory, *callbacks, resume=None):
    """Four micro-batches an epoch, two a step; the order of an epoch depends on its number alone."""
    dataset = TensorDataset(*data(52))
    loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset, num_replicas=1, rank=0, seed=1))
    keep = ModelCheckpoint(dirpath=directory, save_last=True, save_top_k=-1)
    settings = QUIET | {"max_epochs": EPOCHS, "enable_checkpointing": True, "accumulate_grad_batches": 2}
    trainer = Trainer(**settings, callbacks=[keep, *callbacks])
    trainer.fit(Student(seed=2).distill_from(network(7)), loader, ckpt_path=resume)
    return torch.load(directory / "last.ckpt", weights_only=True)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Die())
