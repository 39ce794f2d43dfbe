"""The data that a configuration names."""

from collections.abc import Mapping

import numpy as np

from tpkd.class_names import read_class_names
from tpkd.config.data import DataConfig
from tpkd.config.loading import expand_data, keyed
from tpkd.config.schema import RunConfig
from tpkd.data.dataset import Dataset
from tpkd.data.draws import draw_per_class, hold_out, leave_per_class
from tpkd.data.loading import load_dataset
from tpkd.data.order import SampleOrder
from tpkd.errors import InputError

_LIMIT_SEED = 0


def load_data(config: RunConfig, split: str, own: Mapping[str, Dataset] | None = None) -> Dataset:
    """The samples of a split; a limit always takes the same random subset.

    Args:
        config: the run.
        split: "train", "test" or "validation".
        own: the parts of a data set of one's own, which the configuration does not name.
    """
    data = config.data
    held_out = split == "train" or split in data.held_out
    with keyed("data"):
        part = "train" if held_out else split
        dataset = _load_named(data, part) if own is None else _take_own(data, own, part)
        if held_out and data.held_out:
            dataset = hold_out(dataset, data.held_out, data.seed)[split]
        if data.except_per_class is not None and split == "train":
            dataset = leave_per_class(dataset, data.except_per_class, data.seed)
        if data.per_class is not None and split == "train":
            dataset = draw_per_class(dataset, data.per_class, data.seed)
    limit = config.limit if split == "train" else config.evaluation.limit
    if limit is None or limit >= len(dataset):
        return dataset
    positions, _ = SampleOrder(_LIMIT_SEED, len(dataset)).positions(0, limit)
    return dataset.subset(np.sort(positions))


def load_validation(config: RunConfig, own: Mapping[str, Dataset] | None = None) -> Dataset | None:
    """The validation part of a run; None where it uses none.

    Args:
        config: the run.
        own: the parts of a data set of one's own; a validation part among them is used.

    Raises:
        ConfigError: the run needs one, and the data have none; says what to do.
    """
    asked = config.has_validation or (own is not None and "validation" in own)
    return load_data(config, "validation", own) if asked else None


def _load_named(data: DataConfig, part: str) -> Dataset:
    return load_dataset(
        expand_data(data.name),
        part,
        root=None if data.root is None else expand_data(data.root),
        allow_singletons=data.allow_singletons,
        columns=data.columns.given,
        splits={name: expand_data(place) for name, place in data.splits.given.items()},
        unlabelled=data.unlabelled,
        class_names=None if data.class_names is None else read_class_names(expand_data(data.class_names)),
    )


def _take_own(data: DataConfig, own: Mapping[str, Dataset], part: str) -> Dataset:
    if part not in own:
        raise InputError(f"expected a {part} part, found {', '.join(own)}; or {part}: 0.2 to hold out a share")
    if part != "train":
        return own[part]
    if not own[part].labelled and not data.unlabelled:
        raise InputError("unlabelled: expected true: the training samples have no labels")
    return own[part].without_labels() if data.unlabelled else own[part]
