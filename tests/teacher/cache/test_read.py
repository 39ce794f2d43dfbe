import numpy as np
import pytest
import torch

from teacher.cache.journals import vouch
from teacher.cache.toys import Teacher, make_recipe, make_rows, true_logits
from tpkd.errors import InputError
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.rows import CacheRows


@pytest.fixture
def cache(tmp_path):
    build_cache(tmp_path, make_rows(), Teacher(), make_recipe(), shard_rows=10, block_rows=4)
    return open_cache(tmp_path)


@pytest.fixture
def one_view(tmp_path):
    ids = make_rows(23, 1).sample_ids
    rows = CacheRows(ids, np.full(23, 6), lambda start, stop: np.stack([ids[start:stop], np.full(stop - start, 6)], 1))
    build_cache(tmp_path / "one", rows, Teacher(), make_recipe(), shard_rows=10)
    return open_cache(tmp_path / "one")


@pytest.mark.parametrize("convert", [list, np.asarray, torch.tensor, lambda ids: np.asarray(ids, np.int32)])
def test_ids_may_be_lists_arrays_or_tensors_and_may_repeat(cache, convert):
    samples, views = cache.sample_ids[[5, 5, 60, 0]].tolist(), cache.view_ids[[5, 5, 60, 0]].tolist()
    logits = cache.read(convert(samples), convert(views))
    assert logits.dtype == torch.float32
    assert torch.equal(logits, true_logits(samples, views))


def test_rows_that_were_read_may_be_written_on(cache):
    first = cache.read(cache.sample_ids[:4], cache.view_ids[:4])
    kept = first.clone()
    first.zero_()
    assert torch.equal(cache.read(cache.sample_ids[:4], cache.view_ids[:4]), kept)


def test_an_empty_batch_is_an_empty_tensor(cache):
    none = np.zeros(0, np.int64)
    assert cache.read(none, none).shape == (0, 5)


def test_an_open_cache_says_what_it_is(cache):
    rows = make_rows()
    assert (len(cache), cache.num_views) == (69, 3)
    assert cache.recipe == make_recipe()
    assert cache.sample_ids.tolist() == rows.sample_ids.tolist()
    assert cache.view_ids.tolist() == rows.view_ids.tolist()
    assert cache.locate(rows.sample_ids, rows.view_ids).tolist() == list(range(69))


@pytest.mark.parametrize(("sample", "view"), [(11, 0), (10, 3), (10, -1), (-10, 0), (2**62, 0)])
def test_a_missing_row_is_refused_by_sample_and_view(cache, sample, view):
    with pytest.raises(InputError, match=rf"{cache.directory}: sample {sample}, view {view}: no such row is written"):
        cache.read([10, sample, 10], [0, view, 1])


def test_ids_that_are_not_ids_are_refused(cache):
    for samples, views, match in [
        ([10.0], [0], "sample_ids: expected integers"),
        ([10], [0.5], "view_ids: expected integers"),
        ([[10]], [[0]], "sample_ids: expected integers of shape"),
        ([10, 10], [0], "view_ids: expected 2 as sample_ids has, got 1"),
    ]:
        with pytest.raises(ValueError, match=match):
            cache.read(samples, views)


def test_views_may_be_left_out_only_where_there_is_one(cache, one_view):
    ids = one_view.sample_ids[::-1]
    assert torch.equal(one_view.read(ids), true_logits(ids, [6] * 23))
    with pytest.raises(InputError, match="expected sample and view ids: every sample has 3 views"):
        cache.read(cache.sample_ids)


@pytest.mark.parametrize("block", [1, 7, 10, 100])
def test_a_cache_reads_as_a_file_of_logits(cache, one_view, block):
    array = one_view.array()
    assert (array.shape, array.dtype, array.path) == ((23, 5), torch.float16, one_view.directory)
    blocks = list(array.blocks(block))
    assert [len(rows) for rows in blocks] == [min(block, 23 - start) for start in range(0, 23, block)]
    for _ in range(2):
        assert torch.equal(torch.cat(list(array.blocks(block))).float(), true_logits(one_view.sample_ids, [6] * 23))
    order = np.random.default_rng(1).permutation(69)[:40]
    samples, views = cache.sample_ids[order], cache.view_ids[order]
    by_ids = cache.array(samples, views)
    assert torch.equal(torch.cat(list(by_ids.blocks(block))).float(), true_logits(samples, views))


def test_a_file_of_logits_needs_ids_where_there_are_views_and_refuses_missing_rows(cache):
    with pytest.raises(InputError, match="expected sample and view ids"):
        cache.array()
    with pytest.raises(InputError, match="sample 3, view 0"):
        cache.array([3], [0])


def unfinished(directory):
    rows, teacher = make_rows(), Teacher()

    def forward(keys):
        if len(teacher.rows_seen) >= 24:
            raise KeyboardInterrupt
        return teacher(keys)

    with pytest.raises(KeyboardInterrupt):
        build_cache(directory, rows, forward, make_recipe(), shard_rows=10, block_rows=4)
    return rows


def test_an_unfinished_cache_is_refused_unless_asked_for_and_never_gives_an_unwritten_row(tmp_path):
    rows = unfinished(tmp_path)
    with pytest.raises(InputError, match="expected 69 rows, found 20 written; build it again to compute the rest"):
        open_cache(tmp_path)
    cache = open_cache(tmp_path, partial=True)
    assert len(cache) == 20
    samples, views = rows.sample_ids[:20], rows.view_ids[:20]
    assert torch.equal(cache.read(samples, views), true_logits(samples, views))
    for row in range(20, 69):
        key = f"sample {rows.sample_ids[row]}, view {rows.view_ids[row]}"
        with pytest.raises(InputError, match=f"{key}: no such row is written"):
            cache.read(rows.sample_ids[row : row + 1], rows.view_ids[row : row + 1])


def test_a_bitmap_that_marks_a_row_as_not_written_is_refused(tmp_path):
    """No build publishes such a shard; what is in the place of the row is not the teacher's."""
    from safetensors.numpy import load_file

    from tpkd.teacher.cache.tensors import write_tensors

    build_cache(tmp_path, make_rows(), Teacher(), make_recipe(), shard_rows=10)
    path = tmp_path / "shard-00001.safetensors"
    arrays = load_file(path)
    arrays["written"][3] = False
    write_tensors(path, arrays)
    vouch(tmp_path, path.name)
    with pytest.raises(InputError, match=r"shard-00001\.safetensors: expected every row written, found that row 3 is"):
        open_cache(tmp_path)


def test_the_fingerprint_binds_recipe_and_keys_and_not_the_cut_into_files(tmp_path):
    fingerprints = []
    for number, (rows, recipe, shard_rows) in enumerate(
        [
            (make_rows(), make_recipe(), 10),
            (make_rows(), make_recipe(), 25),
            (make_rows(), make_recipe(dtype="float32"), 10),
            (make_rows(), make_recipe(model_fingerprint="other"), 10),
            (make_rows(22), make_recipe(), 10),
        ]
    ):
        build_cache(tmp_path / str(number), rows, Teacher(), recipe, shard_rows=shard_rows)
        fingerprints.append(open_cache(tmp_path / str(number)).fingerprint)
    assert fingerprints[0] == fingerprints[1]
    assert len(set(fingerprints)) == 4
