"""The data that a configuration names."""

import numpy as np

from tpkd.config.loading import expand_data, keyed
from tpkd.config.schema import RunConfig
from tpkd.data.dataset import Dataset
from tpkd.data.loading import load_dataset
from tpkd.data.order import SampleOrder

_LIMIT_SEED = 0


def load_data(config: RunConfig, split: str) -> Dataset:
    """The samples of a split; a limit always takes the same random subset."""
    with keyed("data"):
        root = None if config.data.root is None else expand_data(config.data.root)
        dataset = load_dataset(
            expand_data(config.data.name),
            split,
            root=root,
            allow_singletons=config.data.allow_singletons,
            columns=config.data.columns.given,
            splits={name: expand_data(part) for name, part in config.data.splits.given.items()},
        )
    limit = config.limit if split == "train" else config.evaluation.limit
    if limit is None or limit >= len(dataset):
        return dataset
    positions, _ = SampleOrder(_LIMIT_SEED, len(dataset)).positions(0, limit)
    return dataset.subset(np.sort(positions))
