"""An objective that takes soft labels and keeps what it was shown, in ten lines and by no code of the losses."""

from typing import ClassVar

import torch

from tpkd.objectives import Objective
from training.tiny import make_config

MIXED = {"num_views": 8, "pad": 1, "scale": 16, "mixup": 0.4, "cutmix": 1.0}


class SoftLabels(Objective):
    """Cross-entropy with the labels, and with the teacher's probabilities on every sample that is not ignored."""

    name = "soft-labels"
    title = summary = source = "soft labels"
    takes_soft_labels = True
    needs = frozenset({"labels", "teacher_logits", "post_step"})
    shown: ClassVar[list] = []
    """Every batch of a run, those of the evaluations after its steps included."""

    def compute_losses(self, batch):
        valid = batch.labels.sum(-1, keepdim=True) > 0
        targets = batch.labels + torch.where(valid, batch.teacher_logits.softmax(-1), 0.0)
        self.shown.append(batch)
        return {"loss": -(targets * batch.student_logits.log_softmax(-1)).sum() / (batch.num_items or 1)}

    def after_step(self, batch):
        self.shown.append(batch)


def mixed_config(directory, overrides=(), **changes):
    """A run that mixes, from a cache, with this objective; it does not look at batches."""
    settings = {"views": MIXED, "objective": "soft-labels", "monitor_every": 0, **changes}
    return make_config(directory, ["teacher.mixed=mixture", *overrides], **settings)


def online_config(directory, overrides=(), **changes):
    """The same with a teacher that runs at every step."""
    return mixed_config(directory, ["teacher.cache=null", "teacher.mixed=null", *overrides], **changes)
