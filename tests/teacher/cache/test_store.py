"""What a block of outputs leaves in a shard, and which outputs leave nothing."""

import numpy as np
import pytest
import torch

from teacher.cache.toys import assert_truncated
from tpkd.errors import InputError
from tpkd.geometry.top_k import TopK
from tpkd.teacher.cache.columns import TOP_K_COLUMNS
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.shards import shard_layout
from tpkd.teacher.cache.store import store_rows

LABELS = [0, 3, 5, 5]


def stored(logits, *, top_k, dtype="float16", **further):
    logits = torch.as_tensor(logits)
    recipe = CacheRecipe(
        "m",
        "d",
        {},
        None,
        logits.shape[1],
        dtype,
        {name: values.shape[1] for name, values in further.items()},
        top_k=top_k,
    )
    rows = CacheRows([7, 8, 9, 10], [0] * 4, None, LABELS)
    arrays = {name: np.zeros(shape, kind) for name, (kind, shape) in shard_layout(recipe, 6).items()}
    store_rows(arrays, slice(2, 4), rows, slice(1, 3), {"logits": logits, **further}, recipe)
    return arrays


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_block_goes_where_it_belongs_with_its_own_labels(dtype):
    logits, pooled = torch.randn(2, 6), torch.randn(2, 3)
    arrays = stored(logits, top_k=2, dtype=dtype, pooled=pooled)
    assert arrays["sample_ids"].tolist() == [0, 0, 8, 9, 0, 0]
    assert arrays["written"].tolist() == [False, False, True, True, False, False]
    kept = TopK(
        **{
            name: torch.from_numpy(arrays[name][2:4].astype(np.float64 if "log" in name else np.int64))
            for name in TOP_K_COLUMNS
        }
    )
    assert_truncated(kept, logits.tolist(), LABELS[1:3], dtype)
    assert arrays["rest_log_probs"].dtype == np.float32
    assert np.array_equal(arrays["pooled"][2:4], pooled.numpy().astype(dtype))
    assert not arrays["log_probs"][[0, 1, 4, 5]].any()


@pytest.mark.parametrize("top_k", [None, 1, 6])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_logit_that_is_not_finite_is_refused_whether_it_would_be_kept_or_cut(top_k, bad):
    logits = torch.tensor([[0.0, 1, 2, 3, 4, 5]] * 2)
    logits[1, 2] = bad
    with pytest.raises(InputError, match=rf"sample 9, view 0: logits\[2\]: expected a finite value, found {bad}"):
        stored(logits, top_k=top_k)


def test_what_the_precision_does_not_hold_is_refused_by_column():
    logits = torch.zeros(2, 6)
    logits[0, 1] = 70_000.0
    match = r"sample 8, view 0: log_probs\[1\]: expected a value that float16 holds; set dtype to float32, found -70000"
    with pytest.raises(InputError, match=match):
        stored(logits, top_k=2)
    with pytest.raises(InputError, match=r"sample 8, view 0: label_log_probs: expected a value that float16 holds"):
        stored(logits, top_k=1)
    arrays = stored(logits, top_k=1, dtype="float32")  # as the message says
    assert arrays["label_log_probs"][2] == -70_000


def test_a_rest_that_vanished_is_refused_and_one_that_is_not_there_is_minus_infinity():
    logits = torch.full((2, 6), -3e38)
    logits[:, [3, 5]] = 3e38
    with pytest.raises(InputError, match=r"sample 8, view 0: rest_log_probs: expected a finite value, found -inf"):
        stored(logits, top_k=2, dtype="float32")
    with pytest.raises(InputError, match=r"sample 8, view 0: rest_log_probs: expected a value that float32 holds, f"):
        stored(logits.double() * 2, top_k=2, dtype="float32")
    assert np.isneginf(stored(torch.randn(2, 6), top_k=6)["rest_log_probs"][2:4]).all()


def test_a_teacher_that_was_truncated_before_is_kept_as_it_is():
    logits = torch.randn(2, 6)
    arrays = stored(logits, top_k=2)
    recipe = CacheRecipe("m", "d", {}, None, 6, top_k=2)
    kept = {name: torch.from_numpy(arrays[name][2:4].astype(np.float64)) for name in TOP_K_COLUMNS}
    again = {name: np.zeros(shape, kind) for name, (kind, shape) in shard_layout(recipe, 6).items()}
    rows = CacheRows([7, 8, 9, 10], [0] * 4, None, LABELS)
    store_rows(again, slice(2, 4), rows, slice(1, 3), kept, recipe)
    assert all(np.array_equal(again[name], arrays[name]) for name in arrays)
    with pytest.raises(
        InputError, match=r"forward: expected outputs logits, found log_probs, indices, label_log_probs$"
    ):
        store_rows(again, slice(2, 4), rows, slice(1, 3), {name: kept[name] for name in TOP_K_COLUMNS[:3]}, recipe)
