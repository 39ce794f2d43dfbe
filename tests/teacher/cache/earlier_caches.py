"""Caches that version 0.1 wrote, in the folder `earlier`: their manifest names the shards."""

from pathlib import Path

import numpy as np

from teacher.cache.toys import label_of, make_recipe, make_rows
from tpkd.teacher.cache.rows import CacheRows

EARLIER = Path(__file__).parent / "earlier"
NAMES = ("ids-in-order", "ids-out-of-order", "truncated", "unfinished")


def earlier_rows(name):
    if name != "ids-in-order":
        return make_rows(5, 2)
    ids = np.arange(5)
    labels = np.array([label_of(sample) for sample in ids])
    return CacheRows.of_views(ids, 2, lambda positions, views: np.stack([ids[positions], views], 1), labels)


def earlier_recipe(name):
    return make_recipe(versions={"tpkd": "0.1.0", "torch": "2.10.0"}, top_k=2 if name == "truncated" else None)
