"""The data that a configuration names."""

import numpy as np

from tpkd.config.loading import expand_data, keyed
from tpkd.config.schema import RunConfig
from tpkd.data.dataset import Dataset
from tpkd.data.draws import draw_per_class, hold_out
from tpkd.data.loading import load_dataset
from tpkd.data.order import SampleOrder

_LIMIT_SEED = 0


def load_data(config: RunConfig, split: str) -> Dataset:
    """The samples of "train", "test" or "validation"; a limit always takes the same random subset."""
    data = config.data
    held_out = split == "train" or split in data.held_out
    with keyed("data"):
        root = None if data.root is None else expand_data(data.root)
        dataset = load_dataset(
            expand_data(data.name),
            "train" if held_out else split,
            root=root,
            allow_singletons=data.allow_singletons,
            columns=data.columns.given,
            splits={name: expand_data(part) for name, part in data.splits.given.items()},
        )
        if held_out and data.held_out:
            dataset = hold_out(dataset, data.held_out, data.seed)[split]
        if data.per_class is not None and split == "train":
            dataset = draw_per_class(dataset, data.per_class, data.seed)
    limit = config.limit if split == "train" else config.evaluation.limit
    if limit is None or limit >= len(dataset):
        return dataset
    positions, _ = SampleOrder(_LIMIT_SEED, len(dataset)).positions(0, limit)
    return dataset.subset(np.sort(positions))


def load_validation(config: RunConfig) -> Dataset | None:
    """The validation part of a run; None where it uses none.

    Raises:
        ConfigError: the run needs one, and the data have none; says what to do.
    """
    return load_data(config, "validation") if config.has_validation else None
