"""Fit one window on two processes and keep what each stepped with: `python ranks.py DIRECTORY classes|soft`."""

import sys
from pathlib import Path

import torch
from lightning.pytorch import Callback

from integrations.lightning.tiny import KeepGradients, Student, data, fit, network, soft_data
from tpkd.integrations.lightning import MonitorCallback

PARTS, SIZE = 2, 16
DATA = {"classes": data, "soft": soft_data}


class Save(Callback):
    def __init__(self, directory):
        self.directory, self.kept = directory, KeepGradients()

    def on_before_optimizer_step(self, *args):
        self.kept.on_before_optimizer_step(*args)

    def on_train_batch_end(self, trainer, pl_module, *_):
        if not self.kept.steps:
            return
        wrapped = [name for name, _ in trainer.strategy.model.named_parameters()]
        monitor = {name: each.item() for name, each in trainer.callback_metrics.items()}
        found = {"gradients": self.kept.steps, "monitor": monitor, "wrapped": wrapped}
        torch.save(found, self.directory / f"rank-{trainer.global_rank}.pt")


class OfMine(torch.utils.data.Dataset):
    """Micro-batches of this process; the trainer asks for them after it has started the other one."""

    def __len__(self):
        return PARTS

    def __getitem__(self, part):
        inputs, labels = DATA[sys.argv[2]]()
        mine = part + PARTS * torch.distributed.get_rank()
        return inputs[SIZE * mine : SIZE * (mine + 1)], labels[SIZE * mine : SIZE * (mine + 1)]


if __name__ == "__main__":
    fit(
        Student().distill_from(network(7)),
        OfMine(),
        [MonitorCallback(every=1), Save(Path(sys.argv[1]))],
        strategy="ddp",
        devices=2,
        accumulate_grad_batches=PARTS,
        use_distributed_sampler=False,
    )
