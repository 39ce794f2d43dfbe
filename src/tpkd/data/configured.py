"""The data that a configuration names."""

import numpy as np

from tpkd.class_names import read_class_names
from tpkd.config.loading import expand_data, keyed
from tpkd.config.schema import RunConfig
from tpkd.data.dataset import Dataset
from tpkd.data.draws import draw_per_class, hold_out
from tpkd.data.loading import load_dataset
from tpkd.data.order import SampleOrder

_LIMIT_SEED = 0


def load_data(config: RunConfig, split: str) -> Dataset:
    """The samples of a split; a limit always takes the same random subset."""
    data = config.data
    held_out = data.test is not None and split != "validation"
    with keyed("data"):
        root = None if data.root is None else expand_data(data.root)
        dataset = load_dataset(
            expand_data(data.name),
            "train" if held_out else split,
            root=root,
            allow_singletons=data.allow_singletons,
            columns=data.columns.given,
            splits={name: expand_data(part) for name, part in data.splits.given.items()},
            unlabelled=data.unlabelled,
            class_names=None if data.class_names is None else read_class_names(expand_data(data.class_names)),
        )
        if held_out:
            assert data.test is not None
            dataset = dict(zip(("train", "test"), hold_out(dataset, data.test, data.seed), strict=True))[split]
        if data.per_class is not None and split == "train":
            dataset = draw_per_class(dataset, data.per_class, data.seed)
    limit = config.limit if split == "train" else config.evaluation.limit
    if limit is None or limit >= len(dataset):
        return dataset
    positions, _ = SampleOrder(_LIMIT_SEED, len(dataset)).positions(0, limit)
    return dataset.subset(np.sort(positions))
