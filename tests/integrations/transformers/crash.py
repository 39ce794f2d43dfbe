"""A run that is killed in the middle of its seventh step.

python crash.py DIRECTORY
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from transformers import TrainerCallback

from integrations.transformers.tiny import text_model, texts, trainer_for
from tpkd.integrations.transformers import MonitorCallback

STEPS = {
    "max_steps": 12,
    "save_strategy": "steps",
    "save_steps": 4,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,
    "lr_scheduler_type": "cosine",
}


def run(directory, teacher=None, *, callbacks=()):
    """A run whose student and teacher both have dropout, over texts with ids; the teacher's must stay off."""
    return trainer_for(
        directory,
        text_model(0, dropout=0.2),
        texts(56, ids=True),
        teacher=teacher or text_model(1, dropout=0.2),
        callbacks=[MonitorCallback(), *callbacks],
        arguments_=STEPS,
    )


class Kill(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **_):
        if state.global_step == 6:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    run(sys.argv[1], callbacks=[Kill()]).train()
