"""The published data sets themselves, where they are at hand."""

import os

import numpy as np
import pytest

from tpkd.data.batches import Preparation, TrainingBatches, load_batches
from tpkd.data.loading import load_dataset

pytestmark = pytest.mark.skipif(
    not os.environ.get("TPKD_DATA"), reason="TPKD_DATA does not name a folder with clinc150/ and cifar-100-python/"
)


def test_clinc150_has_the_papers_counts():
    train, test = load_dataset("clinc150", "train"), load_dataset("clinc150", "test")
    assert (len(train), len(test)) == (18_000, 4_500)
    assert train.num_classes == test.num_classes == 150
    assert (np.bincount(train.labels) == 120).all()
    assert (np.bincount(test.labels) == 30).all()
    assert "oos" not in train.class_names
    assert not set(train.ids) & set(test.ids)


def test_four_epochs_of_clinc150_are_1125_iterations_that_cross_epochs():
    train = load_dataset("clinc150", "train")
    batches = TrainingBatches(
        train, Preparation(tokenize=lambda texts: {}), seed=42, batch_size=64, num_samples=4 * len(train)
    )
    assert len(batches) == 1125
    crossing = batches[281]
    first_epoch = np.concatenate([batches[number].sample_ids for number in range(281)])
    assert len(set(crossing.sample_ids.tolist()) - set(first_epoch.tolist())) == 16  # the rest of the first epoch
    seen = np.concatenate([batch.sample_ids for batch in load_batches(batches)])
    assert (np.bincount(seen, minlength=18_000) == 4).all()


def test_cifar100_has_the_published_counts():
    for split, count in (("train", 50_000), ("test", 10_000)):
        data = load_dataset("cifar100", split)
        assert data.inputs.shape == (count, 32, 32, 3)
        assert (np.bincount(data.labels) == count / 100).all()
        assert data.class_names[:2] == ("apple", "aquarium_fish")
        if split == "train":
            # Channel means of the published training images, as the literature gives them to three digits.
            means = data.inputs.mean(axis=(0, 1, 2)) / 255
            assert np.abs(means - [0.5071, 0.4865, 0.4409]).max() < 5e-4
