"""Training iterations from a snapshot in plain torch: micro-batches, momentum, weight decay and dropout by hand."""

import numpy as np
import torch

from mechanism.ce_run import VIEWS, raw_digits
from tpkd import named_direction
from tpkd.data.views import ViewRecipe

RATE, MOMENTUM, DECAY, MICRO = 0.1, 0.9, 1e-3, 32


class PlainTraining:
    """SGD from the state after an epoch, on batches given by their ids and views."""

    def __init__(self, ce_run, epoch):
        state = ce_run.state(epoch)
        self.ce_run = ce_run
        self.model = ce_run.student(epoch).train()
        self.parameters = list(self.model.parameters())
        self.momenta = [state["optimizer"][f"{index}.momentum_buffer"] for index in range(len(self.parameters))]
        torch.set_rng_state(state["random"]["0.torch"])

    def step(self, direction, sample_ids, view_ids, beta=0.5):
        """One iteration; the surrogate's gradient at the logits is the direction over the size of the batch."""
        images, labels = self.images(sample_ids, view_ids)
        teachers = torch.from_numpy(self.ce_run.cached(sample_ids, view_ids)).float()
        for parameter in self.parameters:
            parameter.grad = None
        for start in range(0, len(images), MICRO):
            rows = slice(start, start + MICRO)
            logits = self.model(images[rows])
            v = named_direction(direction, logits.detach(), teachers[rows], labels[rows], beta=beta)
            (logits * v).sum().div(len(images)).backward()
        with torch.no_grad():
            for parameter, momentum in zip(self.parameters, self.momenta, strict=True):
                momentum.mul_(MOMENTUM).add_(parameter.grad + DECAY * parameter)
                parameter.sub_(RATE * momentum)

    def images(self, sample_ids, view_ids):
        raw, labels = raw_digits("train", sample_ids)
        return ViewRecipe(**VIEWS).render(raw, np.array(sample_ids), np.array(view_ids)), torch.from_numpy(labels)

    @torch.no_grad()
    def logits(self, sample_ids, view_ids):
        images, labels = self.images(sample_ids, view_ids)
        logits = self.model.eval()(images).double().numpy()
        self.model.train()
        return logits, labels.numpy()
