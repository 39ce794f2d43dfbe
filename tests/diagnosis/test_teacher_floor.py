"""A teacher that was cut to its top classes and filled up is refused, and no other one."""

import numpy as np
import pytest
import torch

from diagnosis.files_of import write_files
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.run import diagnose_files
from tpkd.errors import InputError


def diagnose_one(files, **settings):
    return diagnose_files(open_inputs([files.student], files.teacher, files.labels), **settings).students[0]


def cut(zt, keep, floor):
    """The largest `keep` logits of every row, the others at one value; `keep` may differ from row to row."""
    ranks = (-zt).argsort(1).argsort(1)
    return np.where(ranks < np.reshape(keep, (-1, 1)), zt, np.asarray(floor, zt.dtype))


@pytest.mark.parametrize("floor", [-100.0, -1e4, -65504.0, np.finfo(np.float32).min])
@pytest.mark.parametrize("keep", [2, 5, 8, "any"])
@pytest.mark.parametrize("block_elements", [10, 10_000])
def test_a_teacher_cut_to_its_top_classes_is_refused(tmp_path, keep, floor, block_elements):
    files = write_files(tmp_path, num_classes=10)
    kept = np.random.default_rng(1).integers(1, 9, len(files.y)) if keep == "any" else keep
    np.save(files.teacher, cut(files.zt, kept, floor))
    with pytest.raises(InputError, match=r"teacher\.npy: .* a teacher cut to its top classes flips the blocking test"):
        diagnose_one(files, block_elements=block_elements)


def test_a_cut_teacher_that_was_normalised_again_is_refused(tmp_path):
    files = write_files(tmp_path, num_classes=10)
    for path, logits in ((files.student, files.z), (files.teacher, cut(files.zt, 3, -1e4))):
        np.save(path, torch.from_numpy(logits).double().log_softmax(-1).numpy())
    inputs = open_inputs([files.student], files.teacher, files.labels, form="log-probabilities")
    with pytest.raises(InputError, match="cut to its top classes"):
        diagnose_files(inputs)


HONEST = {
    "float16": lambda zt, y: zt.astype(np.float16),
    "large": lambda zt, y: 1e6 * zt,
    "rounded to eighths": lambda zt, y: np.round(zt * 8) / 8,
    "rounded to hundreds": lambda zt, y: np.round(zt) * 100,
    "all alike": lambda zt, y: np.zeros_like(zt),
    "cut at zero": lambda zt, y: np.maximum(zt, 0),
    "smoothed labels": lambda zt, y: 7.0 * np.eye(zt.shape[1], dtype=zt.dtype)[y],
    "hard labels": lambda zt, y: 100.0 * np.eye(zt.shape[1], dtype=zt.dtype)[y],
    "classes it does not have": lambda zt, y: np.where(np.arange(zt.shape[1]) < 6, zt, np.float32(-1e9)),
    "one row that is whole": lambda zt, y: np.concatenate([cut(zt[:-1], 3, -1e4), zt[-1:]]),
    "a floor within reach": lambda zt, y: cut(zt, 5, -20.0),
}


@pytest.mark.parametrize("name", HONEST)
def test_other_teachers_are_taken_as_they_are(tmp_path, name):
    files = write_files(tmp_path, num_classes=10)
    np.save(files.teacher, HONEST[name](files.zt, files.y))
    assert diagnose_one(files).examples == len(files.y)
