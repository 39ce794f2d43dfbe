"""scikit-learn's handwritten digits: shipped with scikit-learn, so everything can be tried without a download."""

import numpy as np

from tpkd.data.dataset import Dataset
from tpkd.errors import extra

HELD_OUT_SHARE = 0.4
SPLIT_SEED = 42


def load_digits(split: str) -> Dataset:
    """1,797 images uint8 (8, 8, 1) with values 0 to 16, with a fixed split, stratified by class.

    There is no published split: the test part is 40 % of every class, drawn with a fixed seed. Sample ids are
    positions in scikit-learn's order, over both splits.

    Example:
        >>> len(load_digits("train")), len(load_digits("test")), load_digits("train").inputs.shape
        (1078, 719, (1078, 8, 8, 1))
    """
    with extra("train"):
        from sklearn.datasets import load_digits as load
        from sklearn.model_selection import train_test_split
    published = load()
    ids = np.arange(len(published.target))
    parts = train_test_split(ids, test_size=HELD_OUT_SHARE, stratify=published.target, random_state=SPLIT_SEED)
    chosen = parts[split == "test"].astype(np.int64)
    images = published.images[chosen, :, :, None].astype(np.uint8)
    class_names = tuple(str(digit) for digit in range(10))
    return Dataset("digits", split, "image", images, published.target[chosen].astype(np.int64), chosen, class_names)
