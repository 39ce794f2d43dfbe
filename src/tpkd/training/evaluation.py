"""Accuracy and label loss of a student on the test split."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tpkd.class_names import to_metadata
from tpkd.config.schema import RunConfig
from tpkd.data.batches import PlainBatches, Preparation, load_batches
from tpkd.data.dataset import Dataset
from tpkd.data.slicing import to_device
from tpkd.files import write_file
from tpkd.models.classifier import Classifier
from tpkd.teacher.teacher import OnlineTeacher


@dataclass(frozen=True)
class Evaluation:
    """What a student says about every sample of a split, in the order of the data set, and how often it is right."""

    accuracy: float
    """The share of samples whose largest logit is the label's, in [0, 1]."""
    label_loss: float
    logits: Tensor
    labels: Tensor
    sample_ids: Tensor

    def publish(self, path: Path, class_names: Sequence[str]) -> None:
        """Keep logits, labels, sample ids and class names, as `tpkd diagnose` takes them."""
        from safetensors.torch import save

        tensors = {"logits": self.logits, "labels": self.labels, "sample_ids": self.sample_ids}
        write_file(path, save(tensors, metadata=to_metadata(class_names)))


@torch.no_grad()
def evaluate(
    network: Classifier | OnlineTeacher,
    dataset: Dataset,
    preparation: Preparation,
    accelerator: Any,
    config: RunConfig,
) -> Evaluation:
    """Every sample once, as it is, each process a share of the batches; the network's mode is put back afterwards.

    Networks without statistics of their batch give the same numbers for any number of processes.
    """
    batch_size = config.evaluation.batch_size
    batches = PlainBatches(dataset, preparation, batch_size=batch_size)
    bounds = [len(batches) * part // accelerator.num_processes for part in range(accelerator.num_processes + 1)]
    start, stop = bounds[accelerator.process_index :][:2]
    found = [torch.empty(0, dataset.num_classes, device=accelerator.device)]
    module = network.model if isinstance(network, OnlineTeacher) else network
    training = module.training
    module.eval()
    for batch in load_batches(batches, start=start, stop=stop, workers=config.workers):
        with accelerator.autocast():
            found.append(network(to_device(batch.inputs, accelerator.device)).float())
    module.train(training)
    sizes = [last - first for first, last in pairwise(min(bound * batch_size, len(dataset)) for bound in bounds)]
    padded = accelerator.gather(accelerator.pad_across_processes(torch.cat(found)))
    logits = torch.cat([share[:size] for share, size in zip(padded.split(max(sizes)), sizes, strict=True)])
    labels = torch.from_numpy(dataset.labels).to(logits.device)
    # Of the whole split at once, so that no share is weighed wrongly.
    return Evaluation(
        accuracy=float((logits.argmax(-1) == labels).sum() / len(labels)),
        label_loss=float(functional.cross_entropy(logits, labels)),
        logits=logits.cpu(),
        labels=torch.from_numpy(dataset.labels),
        sample_ids=torch.from_numpy(dataset.ids),
    )
