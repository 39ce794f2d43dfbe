"""Accuracy and label loss of a student on the test split."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tpkd.class_names import to_metadata
from tpkd.data.batches import PlainBatches, Preparation, load_batches
from tpkd.data.dataset import Dataset
from tpkd.data.slicing import to_device
from tpkd.errors import extra
from tpkd.files import publish_bytes
from tpkd.models.classifier import Classifier


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
        publish_bytes(path, save(tensors, metadata=to_metadata(class_names)))


@torch.no_grad()
def evaluate(
    student: Classifier,
    dataset: Dataset,
    preparation: Preparation,
    accelerator: Any,
    *,
    batch_size: int,
    workers: int = 0,
) -> Evaluation:
    """Every sample once, as it is, each process a share of the batches; the student's mode is put back afterwards.

    Networks without statistics of their batch give the same numbers for any number of processes.
    """
    with extra("train"):
        from torchmetrics.functional.classification import multiclass_accuracy
        from torchmetrics.utilities.distributed import gather_all_tensors
    batches = PlainBatches(dataset, preparation, batch_size=batch_size)
    share = [len(batches) * part // accelerator.num_processes for part in range(accelerator.num_processes + 1)]
    start, stop = share[accelerator.process_index], share[accelerator.process_index + 1]
    found = [torch.empty(0, dataset.num_classes, device=accelerator.device)]
    training = student.training
    student.eval()
    for batch in load_batches(batches, start=start, stop=stop, workers=workers):
        with accelerator.autocast():
            found.append(student(to_device(batch.inputs, accelerator.device)).float())
    student.train(training)
    own = torch.cat(found)
    logits = torch.cat(gather_all_tensors(own)) if accelerator.num_processes > 1 else own
    labels = torch.from_numpy(dataset.labels).to(logits.device)
    # Of the whole split at once, so that no share is weighed wrongly.
    return Evaluation(
        accuracy=float(multiclass_accuracy(logits, labels, dataset.num_classes, average="micro")),
        label_loss=float(functional.cross_entropy(logits, labels)),
        logits=logits.cpu(),
        labels=torch.from_numpy(dataset.labels),
        sample_ids=torch.from_numpy(dataset.ids),
    )
