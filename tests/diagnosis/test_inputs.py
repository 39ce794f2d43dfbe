"""`tpkd diagnose --teacher CACHE_DIR`: rows by sample and view id."""

import numpy as np
import pytest
import torch

from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.run import diagnose_files
from tpkd.errors import InputError
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows

SAMPLES, CLASSES = np.array([40, 10, 30, 20]), 5


def teacher_logits(sample_ids, view_ids):
    rows = [[np.sin(s + 3 * v + 2 * c) for c in range(CLASSES)] for s, v in zip(sample_ids, view_ids, strict=True)]
    return np.array(rows, np.float32)


def make_cache(directory, num_views):
    keys = CacheRows.of_views(SAMPLES, num_views, lambda positions, views: (SAMPLES[positions], views))
    recipe = CacheRecipe("weights", "data", {}, None, CLASSES, dtype="float32")
    build_cache(directory, keys, lambda key: {"logits": torch.from_numpy(teacher_logits(*key))}, recipe)
    return directory


@pytest.fixture
def student(tmp_path):
    """Six rows of a student, their labels, and the teacher rows they belong to."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "student.npy", rng.normal(size=(6, CLASSES)))
    np.save(tmp_path / "labels.npy", rng.integers(CLASSES, size=6))
    return tmp_path / "student.npy", tmp_path / "labels.npy"


@pytest.mark.parametrize("ids_format", ["array", "lines", "commas"])
def test_ids_choose_the_rows_of_the_teacher(tmp_path, student, ids_format):
    samples, views = np.array([20, 40, 10, 20, 30, 10]), np.array([1, 0, 2, 0, 1, 1])
    if ids_format == "array":
        ids = tmp_path / "ids.npy"
        np.save(ids, np.stack([samples, views], 1))
    else:
        ids = tmp_path / "ids.txt"
        between = " " if ids_format == "lines" else ","
        ids.write_text("".join(f"{s}{between}{v}\n" for s, v in zip(samples, views, strict=True)))
    np.save(tmp_path / "teacher.npy", teacher_logits(samples, views))
    cache = make_cache(tmp_path / "cache", num_views=3)
    from_cache = diagnose_files(open_inputs([student[0]], cache, student[1], ids=ids)).students[0]
    from_file = diagnose_files(open_inputs([student[0]], tmp_path / "teacher.npy", student[1])).students[0]
    assert from_cache.all == from_file.all


def test_one_view_in_manifest_order_needs_no_ids(tmp_path):
    cache = make_cache(tmp_path / "cache", num_views=1)
    np.save(tmp_path / "student.npy", np.zeros((4, CLASSES)) + np.arange(CLASSES))
    np.save(tmp_path / "labels.npy", np.arange(4))
    inputs = open_inputs([tmp_path / "student.npy"], cache, tmp_path / "labels.npy")
    (block,) = inputs.teacher.blocks(10)
    assert np.array_equal(block.numpy(), teacher_logits(SAMPLES, np.zeros(4, int)))


def test_what_does_not_fit_is_refused(tmp_path, student):
    cache = make_cache(tmp_path / "cache", num_views=3)
    with pytest.raises(InputError, match="every sample has 3 views"):
        open_inputs([student[0]], cache, student[1])
    ids = tmp_path / "ids.txt"
    ids.write_text("20 1\n40 zero\n")
    with pytest.raises(
        InputError, match=r"ids.txt: row 1: expected a sample id, or a sample and a view id, found '40 zero'"
    ):
        open_inputs([student[0]], cache, student[1], ids=ids)
    ids.write_text("20 1\n" * 5 + "99 0\n")
    with pytest.raises(InputError, match="99"):
        open_inputs([student[0]], cache, student[1], ids=ids)
