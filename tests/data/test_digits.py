"""scikit-learn's digits: the split, pinned."""

import numpy as np

from tpkd.data.loading import load_dataset


def test_digits_hold_out_a_share_of_every_class():
    from sklearn.datasets import load_digits

    published = load_digits()
    train, test = load_dataset("digits", "train"), load_dataset("digits", "test")
    assert sorted([*train.ids, *test.ids]) == list(range(1797))
    for part, share in ((train, 0.6), (test, 0.4)):
        assert np.array_equal(part.inputs[..., 0], published.images[part.ids])
        assert np.array_equal(part.labels, published.target[part.ids])
        counts = np.bincount(part.labels) - share * np.bincount(published.target)
        assert np.abs(counts).max() < 1


def test_the_split_of_digits_is_pinned():
    """A teacher cache of an earlier release holds exactly these samples."""
    assert load_dataset("digits", "train").fingerprint.startswith("bc9bf7e23e48")
    assert load_dataset("digits", "test").fingerprint.startswith("8afd4d27764a")
