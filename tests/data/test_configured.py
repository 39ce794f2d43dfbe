"""The samples that a configuration names."""

import numpy as np

from tpkd.data.configured import load_data
from tpkd.data.loading import load_dataset
from training.tiny import make_config


def test_a_limit_takes_the_same_samples_every_time_from_all_over_the_data(tmp_path):
    config = make_config(tmp_path)
    chosen, whole = load_data(config, "train"), load_dataset("digits", "train")
    assert len(chosen) == config.limit < len(whole)
    assert chosen.fingerprint == load_data(config, "train").fingerprint
    places = np.flatnonzero(np.isin(whole.ids, chosen.ids))
    assert len(places) == config.limit
    assert places[0] < 50
    assert places[-1] > len(whole) - 50
    assert len(load_data(config, "test")) == config.evaluation.limit


def test_a_limit_beyond_the_data_takes_all(tmp_path):
    config = make_config(tmp_path).model_copy(update={"limit": 10**6})
    assert load_data(config, "train").fingerprint == load_dataset("digits", "train").fingerprint
