"""Fixed samples that a study looks at and never learns from, each row one view of a sample."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tpkd.data.batches import Preparation, SampleBatch
from tpkd.data.dataset import Dataset
from tpkd.mechanism.bench import Bench
from tpkd.theory import Diagnosis, diagnose


@dataclass(frozen=True)
class Rows:
    """Which samples of a data set, and in which views."""

    dataset: Dataset
    positions: np.ndarray
    view_ids: np.ndarray

    @property
    def labels(self) -> Int[Tensor, "rows"]:
        """The class of each row."""
        return torch.from_numpy(self.dataset.labels[self.positions])

    @classmethod
    def in_all_views(cls, dataset: Dataset, num_views: int) -> "Rows":
        """Every view of every sample, all views of one sample after the other."""
        positions = np.repeat(np.arange(len(dataset)), num_views)
        return cls(dataset, positions, np.tile(np.arange(num_views), len(dataset)))

    def blocks(self, preparation: Preparation, size: int) -> Iterator[SampleBatch]:
        """The rows as a network sees them, `size` at a time."""
        for start in range(0, len(self.positions), size):
            positions, views = self.positions[start : start + size], self.view_ids[start : start + size]
            columns = (self.dataset.labels[positions], self.dataset.ids[positions], views)
            inputs = preparation.inputs(self.dataset, positions, views)
            yield SampleBatch(inputs, *map(torch.from_numpy, columns))

    def diagnose(self, bench: Bench, teacher_logits: Float[Tensor, "rows K"]) -> Diagnosis:
        """What the theory says about the student on the bench, on all rows."""
        blocks = self.blocks(bench.run.preparation, bench.run.config.evaluation.batch_size)
        logits = torch.cat([bench.student_logits(block.inputs) for block in blocks])
        return diagnose(logits, teacher_logits, self.labels)
