"""A cache of the largest classes from end to end: what is bound, what is refused, what comes back, and its size."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from teacher.cache.toys import Teacher, assert_true_rows, make_recipe, make_rows
from tpkd.errors import InputError
from tpkd.geometry.top_k import TopK, complete_top_k
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.verify import CacheInfo, cache_info, verify_cache


@pytest.fixture
def cache(tmp_path):
    build_cache(tmp_path / "cache", make_rows(), Teacher(), make_recipe(top_k=2), shard_rows=10, block_rows=4)
    return open_cache(tmp_path / "cache")


def test_rows_come_back_in_types_to_compute_in(cache):
    found = cache.read(cache.sample_ids[:3], cache.view_ids[:3])
    assert found.indices.dtype == torch.int64
    floating = (found.log_probs, found.label_log_probs, found.rest_log_probs)
    assert {values.dtype for values in floating} == {torch.float32}
    for name in ("indices", "log_probs", "label_log_probs", "rest_log_probs"):
        again = cache.read_tensor(name, cache.sample_ids[:3], cache.view_ids[:3])
        assert torch.equal(again, getattr(found, name))
    none = np.zeros(0, np.int64)
    empty = cache.read(none, none)
    assert (empty.k, len(empty), empty.label_log_probs.shape) == (2, 0, (0,))


def test_who_needs_all_logits_is_refused_with_what_to_do(cache):
    match = r"cache: expected the logits of all classes, found a cache that kept the 2 largest of 5; build one without"
    with pytest.raises(InputError, match=match):
        cache.array(cache.sample_ids, cache.view_ids)
    with pytest.raises(InputError, match=r"expected a tensor log_probs, indices, .*, found 'logits' asked for"):
        cache.read_tensor("logits", cache.sample_ids, cache.view_ids)


@pytest.mark.parametrize("count", [1, 7, 100])
def test_blocks_come_in_the_order_of_the_ids_in_the_dtype_of_the_cache(cache, count):
    order = np.random.default_rng(1).permutation(69)[:40]
    samples, views = cache.sample_ids[order], cache.view_ids[order]
    blocks = list(cache.blocks(count, samples, views))
    assert [len(block) for block in blocks] == [min(count, 40 - start) for start in range(0, 40, count)]
    assert {(block.log_probs.dtype, block.indices.dtype) for block in blocks} == {(torch.float16, torch.int64)}
    joined = TopK(*(torch.cat([getattr(block, name) for block in blocks]) for name in TopK.__dataclass_fields__))
    assert_true_rows(joined, samples, views)
    with pytest.raises(ValueError, match="count: expected at least 1, got 0"):
        cache.blocks(0)
    with pytest.raises(InputError, match="expected sample and view ids: every sample has 3 views"):
        cache.blocks(10)


def test_blocks_of_a_whole_cache_are_its_logits(tmp_path):
    rows = make_rows(23, 1)
    build_cache(tmp_path, rows, Teacher(), make_recipe(), shard_rows=10)
    opened = open_cache(tmp_path)
    assert torch.equal(torch.cat(list(opened.blocks(7))), torch.cat(list(opened.array().blocks(7))))
    assert opened.top_k is None


def test_other_labels_are_refused_and_the_cache_left_alone(tmp_path):
    rows, recipe = make_rows(), make_recipe(top_k=2)
    build_cache(tmp_path, rows, Teacher(), recipe)
    before = (tmp_path / "manifest.json").read_bytes()
    with pytest.raises(InputError, match="holds another cache: labels: expected those of the rows at hand, found oth"):
        build_cache(tmp_path, replace(rows, labels=np.roll(rows.labels, 1)), Teacher(), recipe)
    with pytest.raises(ValueError, match="labels: expected the label of every row"):
        build_cache(tmp_path, replace(rows, labels=None), Teacher(), recipe)
    with pytest.raises(InputError, match="holds another cache: top_k: expected nothing, found 2"):
        build_cache(tmp_path, rows, Teacher(), make_recipe())
    assert (tmp_path / "manifest.json").read_bytes() == before


def test_a_label_that_is_no_class_is_refused_before_anything_is_written(tmp_path):
    rows, teacher = make_rows(), Teacher()
    labels = rows.labels.copy()
    labels[5] = -100
    with pytest.raises(ValueError, match="labels: expected classes from 0 to 4, got -100 for sample"):
        build_cache(tmp_path / "new", replace(rows, labels=labels), teacher, make_recipe(top_k=2))
    assert not teacher.rows_seen
    assert not list((tmp_path / "new").glob("*.json"))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2**-10), ("float32", 1e-6)])
@pytest.mark.parametrize("top_k", [4, 5])
def test_with_all_classes_or_all_but_one_the_row_comes_back_whole(tmp_path, dtype, tolerance, top_k):
    rows = make_rows()
    build_cache(tmp_path, rows, Teacher(), make_recipe(top_k=top_k, dtype=dtype))
    kept = open_cache(tmp_path).read(rows.sample_ids, rows.view_ids)
    student = torch.randn(len(rows), 5)
    found = complete_top_k(
        student,
        kept.log_probs,
        kept.indices,
        torch.from_numpy(rows.labels),
        label_log_probs=kept.label_log_probs,
        rest_log_probs=kept.rest_log_probs,
    )
    expected = Teacher()(np.stack([rows.sample_ids, rows.view_ids], 1))["logits"].log_softmax(-1)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=1e-6)
    assert (kept.rest_log_probs == -torch.inf).all() == (top_k == 5)


def test_sixty_four_of_fifty_thousand_classes_take_less_than_six_thousandths(tmp_path):
    num_classes, count = 50_000, 400
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(8, num_classes, generator=generator)
    rows = CacheRows(np.arange(count), np.zeros(count, int), lambda start, stop: range(start, stop), np.arange(count))
    recipe = CacheRecipe("m", "d", {}, None, num_classes, top_k=64)
    build_cache(tmp_path, rows, lambda block: {"logits": logits[[row % 8 for row in block]]}, recipe)
    files = sum(path.stat().st_size for path in tmp_path.iterdir())  # ids, header, manifest and all
    full = count * num_classes * 2  # the bare logits in float16
    assert files / full <= 0.006
    info = cache_info(tmp_path)
    assert CacheInfo.from_json(info.to_json()) == info
    assert info.full_bytes == full + count * 17
    assert info.bytes <= files
    kept = open_cache(tmp_path).read([11])
    exact = logits[3].double().log_softmax(-1)
    largest = exact.topk(64)
    assert kept.indices[0].tolist() == largest.indices.tolist()
    torch.testing.assert_close(kept.log_probs[0].double(), largest.values, rtol=2**-10, atol=0)
    others = sorted(set(range(num_classes)) - {11} - set(largest.indices.tolist()))
    assert kept.rest_log_probs.item() == pytest.approx(exact[others].logsumexp(0).item(), rel=1e-5)
    assert verify_cache(tmp_path).passes
