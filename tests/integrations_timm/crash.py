"""A run made of timm's own pieces, killed in the middle of its third epoch.

python crash.py DIRECTORY
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import models_timm.conftest  # noqa: F401 (before timm: see there)

# isort: split
import torch
from timm.data import Mixup
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.task import load_task_ema_checkpoint, resume_task_checkpoint
from timm.utils import CheckpointSaver, random_seed

from integrations_timm.tiny import CLASSES, images, labels, network
from tpkd.integrations.timm import DistillationTask

EPOCHS, BATCH, COUNT = 4, 16, 64


def teacher():
    return network(1, name="test_resnet", dtype=torch.float32, drop_rate=0.2)


def run(directory, *, kill_in=None, resume=False):
    """Train from the newest checkpoint or from the start.

    timm keeps no state of generators: what is random is drawn from the number of the epoch.
    """
    task = DistillationTask(network(0, dtype=torch.float32, drop_rate=0.2), teacher())
    task.setup_ema(decay=0.9)
    optimizer = create_optimizer_v2(task.get_trainable_module(), opt="adamw", lr=1e-3)
    scheduler = CosineLRScheduler(optimizer, t_initial=EPOCHS)
    saver = CheckpointSaver(task.get_eval_model(), optimizer, task=task, checkpoint_dir=str(directory))
    mixup = Mixup(mode="elem", label_smoothing=0.0, num_classes=CLASSES)
    start = 0
    if resume:
        last = str(Path(directory) / "last.pth.tar")
        start = resume_task_checkpoint(task, last, optimizer, log_info=False)
        load_task_ema_checkpoint(task, last)
        scheduler.step(start)
    inputs, target = images(COUNT, dtype=torch.float32), labels(COUNT)
    for epoch in range(start, EPOCHS):
        random_seed(epoch)
        task.train()
        for batch, rows in enumerate(torch.randperm(COUNT).split(BATCH)):
            loss = task(*mixup(inputs[rows], target[rows]))["loss"]
            optimizer.zero_grad()
            loss.backward()
            if (epoch, batch) == kill_in:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.step()
            task.update_ema()
        scheduler.step(epoch + 1)
        saver.save_checkpoint(epoch, metric=float(epoch))


if __name__ == "__main__":
    run(sys.argv[1], kill_in=(2, 2))
