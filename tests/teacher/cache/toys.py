"""Caches of a teacher that is a formula: what every row must hold is known without a cache."""

import math

import numpy as np
import torch

from tpkd.geometry.top_k import TopK
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows

NUM_CLASSES = 5


def value(sample: int, view: int, column: int) -> float:
    """What the teacher says: of the same size as logits, different for every key and class."""
    return 8.0 * math.sin(1.3 * sample + 0.7 * view + 2.1 * column)


def true_logits(sample_ids, view_ids, dtype="float16") -> torch.Tensor:
    """The rows by three loops, rounded as the cache rounds them."""
    rows = [[value(s, v, c) for c in range(NUM_CLASSES)] for s, v in zip(sample_ids, view_ids, strict=True)]
    return torch.from_numpy(np.array(rows, np.float32).reshape(-1, NUM_CLASSES).astype(dtype).astype(np.float32))


def label_of(sample: int) -> int:
    return sample % NUM_CLASSES


def assert_true_rows(found, sample_ids, view_ids, dtype="float16") -> None:
    """What was read of some rows is what the teacher says of them: all logits, or the largest classes of each."""
    if isinstance(found, torch.Tensor):
        assert torch.equal(found, true_logits(sample_ids, view_ids, dtype))
        return
    logits = [[value(s, v, c) for c in range(NUM_CLASSES)] for s, v in zip(sample_ids, view_ids, strict=True)]
    assert_truncated(found, logits, [label_of(s) for s in sample_ids], dtype)


def assert_truncated(found: TopK, logits: list[list[float]], labels: list[int], dtype: str) -> None:
    """Row by row in plain Python; a value may be off by a rounding to its precision."""
    precision = {"float16": 2**-10, "float32": 1e-5}
    assert len(found) == len(logits)
    for row, (z, y) in enumerate(zip(logits, labels, strict=True)):
        highest = max(z)
        total = math.log(math.fsum(math.exp(each - highest) for each in z)) + highest
        kept = sorted(range(len(z)), key=lambda c: (-z[c], c))[: found.k]
        others = [math.exp(z[c] - total) for c in range(len(z)) if c not in kept and c != y]
        assert found.indices[row].tolist() == kept
        said = [*found.log_probs[row].tolist(), found.label_log_probs[row].item()]
        for value_found, each in zip(said, [*kept, y], strict=True):
            assert math.isclose(value_found, z[each] - total, rel_tol=precision[dtype], abs_tol=1e-6)
        rest = math.log(math.fsum(others)) if others else -math.inf
        assert math.isclose(found.rest_log_probs[row].item(), rest, rel_tol=precision["float32"])


class Teacher:
    """Computes rows from their keys, and counts them."""

    def __init__(self, num_classes: int = NUM_CLASSES) -> None:
        self.rows_seen: list[tuple[int, int]] = []
        self.num_classes = num_classes

    def __call__(self, inputs):
        self.rows_seen.extend(map(tuple, inputs.tolist()))
        values = [[value(s, v, c) for c in range(self.num_classes)] for s, v in inputs.tolist()]
        return {"logits": torch.tensor(values, dtype=torch.float64).float()}


def make_rows(num_samples: int = 23, num_views: int = 3) -> CacheRows:
    """Sample ids with gaps and out of order, every view of each; the inputs of a row are its key."""
    ids = (np.arange(num_samples) * 7919) % 104729 + 10
    labels = np.array([label_of(sample) for sample in ids])
    return CacheRows.of_views(ids, num_views, lambda positions, views: np.stack([ids[positions], views], 1), labels)


def make_recipe(**changes) -> CacheRecipe:
    settings = {
        "model_fingerprint": "weights",
        "dataset_fingerprint": "data",
        "preprocessing": {"pad": 4, "size": (32, 32), "views": {"seed": 0}},
        "class_map": {"names": ["a", "b", "c", "d", "e"]},
        "num_classes": NUM_CLASSES,
    }
    return CacheRecipe(**{**settings, **changes})
