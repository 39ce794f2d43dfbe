import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from teacher.cache.journals import vouch
from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.tensors import write_tensors
from tpkd.teacher.cache.verify import CacheInfo, VerifyReport, cache_info, verify_cache


@pytest.fixture(params=[("float16", None), ("float32", None), ("float16", 2), ("float32", 2), ("float32", 5)], ids=str)
def directory(tmp_path, request):
    dtype, top_k = request.param
    build_cache(tmp_path, make_rows(), Teacher(), make_recipe(dtype=dtype, top_k=top_k), shard_rows=10, block_rows=4)
    return tmp_path


def test_info_is_a_record_of_the_manifest(directory):
    info = cache_info(directory)
    assert CacheInfo.from_json(info.to_json()) == info
    assert (info.rows, info.rows_written, info.samples, info.views, info.shards) == (69, 69, 23, 3, 7)
    assert info.complete
    assert info.bytes == sum(path.stat().st_size for path in directory.glob("shard-*.safetensors"))
    assert (info.index_bytes, info.part) == (0, None)
    assert info.fingerprint == open_cache(directory).fingerprint


def test_info_says_what_the_index_takes(tmp_path):
    build_cache(tmp_path, make_rows(69, 1), Teacher(), make_recipe(), shard_rows=10)
    info = cache_info(tmp_path)
    assert info.index_bytes == (tmp_path / "index.safetensors").stat().st_size
    assert CacheInfo.from_json(info.to_json()) == info


def test_a_sound_cache_passes_and_the_sampled_rows_are_forwarded_once(directory):
    teacher = Teacher()
    report = verify_cache(directory, forward=teacher, rows=make_rows(), sample=20)
    assert report.passes
    assert VerifyReport.from_json(report.to_json()) == report
    assert len(set(teacher.rows_seen)) == len(teacher.rows_seen) == report.rows_recomputed == 20
    recipe = open_cache(directory).recipe
    if recipe.dtype == "float32":
        # Where the largest were kept, a row alone and a row of a block are summed in another order.
        assert report.max_difference <= (0 if recipe.top_k is None else 1e-6)
    else:
        largest = 8 if recipe.top_k is None else 16  # of logits, and of log-probabilities
        assert 0 < report.max_difference <= 2**-11 * largest  # one rounding to float16
    assert verify_cache(directory).max_difference is None


def test_a_sample_larger_than_the_cache_is_the_whole_cache(directory):
    assert verify_cache(directory, forward=Teacher(), rows=make_rows(), sample=1000).rows_recomputed == 69


def named(problems):
    """The rows that problems are about; a truncated row may differ in several columns."""
    return {" ".join(problem.split(": ")[:2]) for problem in problems}


def test_another_teacher_is_found_and_its_rows_named(directory):
    def other(keys):
        outputs = Teacher()(keys)
        outputs["logits"][:, outputs["logits"].argmax()] += 0.2  # one row at a time
        return outputs

    report = verify_cache(directory, forward=other, rows=make_rows(), sample=5)
    assert not report.passes
    assert len(named(report.problems)) == 5
    assert report.problems[0].startswith(f"{directory}: sample ")
    name = "logits" if open_cache(directory).top_k is None else r"rest_log_probs|label_log_probs|log_probs"
    found = r"expected what the model says now, found values that differ by up to 0\.\d"
    assert all(re.search(f": ({name}): {found}", problem) for problem in report.problems)


def test_a_teacher_that_says_nan_does_not_pass(directory):
    report = verify_cache(directory, forward=lambda keys: {"logits": torch.full((1, 5), torch.nan)}, rows=make_rows())
    assert len(named(report.problems)) == 32
    assert report.max_difference is None


def test_inputs_of_other_samples_are_found(directory):
    rows = make_rows()
    shifted = replace(rows, inputs=lambda start, stop: rows.inputs(start - 1, stop - 1))
    report = verify_cache(directory, forward=Teacher(), rows=shifted, sample=5)
    assert len(named(report.problems)) == 5


def test_rows_in_another_order_are_found_before_any_forward(directory):
    rows, teacher = make_rows(), Teacher()
    turned = CacheRows(rows.sample_ids[::-1], rows.view_ids[::-1], rows.inputs)
    report = verify_cache(directory, forward=teacher, rows=turned)
    assert report.problems == (f"{directory}: the rows at hand have other sample ids, view ids or another order",)
    assert not teacher.rows_seen


def test_every_damaged_shard_is_named(directory):
    (directory / "shard-00000.safetensors").unlink()
    path = directory / "shard-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    path = directory / "shard-00005.safetensors"
    data = np.frombuffer(path.read_bytes(), np.uint8).copy()
    data[len(data) // 2] ^= 64
    path.write_bytes(data.tobytes())
    problems = verify_cache(directory).problems
    assert [problem.split(":")[0] for problem in problems] == [
        str(directory / f"shard-{index:05d}.safetensors") for index in (0, 3, 5)
    ]
    assert "cannot be read: No such file" in problems[0]
    assert "bytes, found" in problems[1]
    assert "expected SHA-256" in problems[2]


def test_an_unfinished_cache_does_not_pass(tmp_path):
    def stop(keys):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_cache(tmp_path, make_rows(), stop, make_recipe())
    assert verify_cache(tmp_path).problems == (f"{tmp_path}: expected 69 rows, found 0 written",)
    info = cache_info(tmp_path)
    assert (info.complete, info.rows_written, info.bytes) == (False, 0, 0)


def test_a_teacher_needs_rows(directory):
    with pytest.raises(ValueError, match="forward, rows: expected both or neither"):
        verify_cache(directory, forward=Teacher())


def test_other_labels_are_found_before_any_forward(tmp_path):
    rows, teacher = make_rows(), Teacher()
    build_cache(tmp_path, rows, Teacher(), make_recipe(top_k=2))
    other = replace(rows, labels=np.roll(rows.labels, 1))
    report = verify_cache(tmp_path, forward=teacher, rows=other)
    assert report.problems == (f"{tmp_path}: the rows at hand have other labels",)
    assert not teacher.rows_seen
    with pytest.raises(ValueError, match="labels: expected the label of every row"):
        verify_cache(tmp_path, forward=teacher, rows=replace(rows, labels=None))


@pytest.mark.parametrize("column", [4, 0])
def test_a_class_that_should_have_been_kept_is_found(tmp_path, column):
    """The model now prefers a class of which the cache only knows that it is one of the rest."""
    rows = make_rows(40, 1)
    build_cache(tmp_path, rows, Teacher(), make_recipe(top_k=2))
    kept = open_cache(tmp_path).read(rows.sample_ids)
    row = int(((kept.indices != column).all(-1) & (torch.from_numpy(rows.labels) != column)).nonzero()[0])

    def changed(keys):
        outputs = Teacher()(keys)
        if tuple(keys[0].tolist()) == (rows.sample_ids[row], 0):
            outputs["logits"][:, column] = outputs["logits"].max() + 5
        return outputs

    problems = verify_cache(tmp_path, forward=changed, rows=rows, sample=40).problems
    assert named(problems) == {f"{tmp_path} sample {rows.sample_ids[row]}, view 0"}
    assert any("indices: expected what the model says now" in problem for problem in problems)


def test_a_swap_of_two_nearly_equal_classes_is_no_problem(tmp_path):
    """Another batch size changes the last bits of a logit, and so which of two equals is kept."""
    rows = make_rows(10, 1)
    logits = torch.tensor([3.0, 1.0, 1.0, 0.0, -1.0])

    def forward(keys, first=0.0):
        return {"logits": (logits + torch.tensor([0, 0, first, 0, 0])).expand(len(keys), 5)}

    build_cache(tmp_path, rows, forward, make_recipe(top_k=2, dtype="float32"))
    assert verify_cache(tmp_path, forward=lambda keys: forward(keys, 1e-6), rows=rows).passes
    assert not verify_cache(tmp_path, forward=lambda keys: forward(keys, 1e-2), rows=rows).passes


def test_a_rest_that_is_said_to_be_nothing_is_found(tmp_path):
    from safetensors.numpy import load_file

    rows = make_rows(10, 1)
    build_cache(tmp_path, rows, Teacher(), make_recipe(top_k=2))
    path = tmp_path / "shard-00000.safetensors"
    arrays = load_file(path)
    arrays["rest_log_probs"][4] = -np.inf
    write_tensors(path, arrays)
    vouch(tmp_path, path.name)
    assert verify_cache(tmp_path).passes  # nothing to tell it by without the model
    (problem,) = verify_cache(tmp_path, forward=Teacher(), rows=rows).problems
    assert f"sample {rows.sample_ids[4]}, view 0: rest_log_probs: expected what the model says now" in problem
