import numpy as np
import pytest
import torch

from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.verify import CacheInfo, VerifyReport, cache_info, verify_cache


@pytest.fixture(params=["float16", "float32"])
def directory(tmp_path, request):
    build_cache(tmp_path, make_rows(), Teacher(), make_recipe(dtype=request.param), shard_rows=10, block_rows=4)
    return tmp_path


def test_info_is_a_record_of_the_manifest(directory):
    info = cache_info(directory)
    assert CacheInfo.from_json(info.to_json()) == info
    assert (info.rows, info.rows_written, info.samples, info.views, info.shards) == (69, 69, 23, 3, 7)
    assert info.complete
    assert info.bytes == sum(path.stat().st_size for path in directory.glob("*.safetensors"))
    assert info.fingerprint == open_cache(directory).fingerprint


def test_a_sound_cache_passes_and_the_sampled_rows_are_forwarded_once(directory):
    teacher = Teacher()
    report = verify_cache(directory, forward=teacher, rows=make_rows(), sample=20)
    assert report.passes
    assert VerifyReport.from_json(report.to_json()) == report
    assert len(set(teacher.rows_seen)) == len(teacher.rows_seen) == report.rows_recomputed == 20
    if open_cache(directory).recipe.dtype == "float32":
        assert report.max_difference == 0
    else:
        assert 0 < report.max_difference <= 2**-11 * 8  # one rounding to float16 of a value below 8
    assert verify_cache(directory).max_difference is None


def test_a_sample_larger_than_the_cache_is_the_whole_cache(directory):
    assert verify_cache(directory, forward=Teacher(), rows=make_rows(), sample=1000).rows_recomputed == 69


def test_another_teacher_is_found_and_its_rows_named(directory):
    def other(keys):
        outputs = Teacher()(keys)
        outputs["logits"][:, 1] += 0.2
        return outputs

    report = verify_cache(directory, forward=other, rows=make_rows(), sample=5)
    assert not report.passes
    assert len(report.problems) == 5
    assert report.problems[0].startswith(f"{directory}: sample ")
    assert "logits: expected what the model says now, found values that differ by up to 0.2" in report.problems[0]


def test_a_teacher_that_says_nan_does_not_pass(directory):
    report = verify_cache(directory, forward=lambda keys: {"logits": torch.full((1, 5), torch.nan)}, rows=make_rows())
    assert len(report.problems) == 32
    assert report.max_difference is None


def test_inputs_of_other_samples_are_found(directory):
    rows = make_rows()
    shifted = CacheRows(rows.sample_ids, rows.view_ids, lambda start, stop: rows.inputs(start - 1, stop - 1))
    report = verify_cache(directory, forward=Teacher(), rows=shifted, sample=5)
    assert len(report.problems) == 5


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
