"""Rows on their way into a kernel: where the direction goes, which tensors a teacher has, and strides."""

import pytest
import torch

from tpkd.geometry.top_k import TopK
from tpkd.objectives.kernels.batch import Batch, parts_of, unit_stride


def batch(student: torch.Tensor, **asked: bool) -> Batch:
    return Batch(
        student, torch.zeros_like(student), torch.zeros(len(student), dtype=torch.long), None, 0.5, 1.0, **asked
    )


def test_a_direction_has_memory_of_its_own_unless_it_may_overwrite():
    student = torch.randn(2, 3)
    assert batch(student, wanted=True, overwrite=True).direction_memory() is student
    own = batch(student, wanted=True).direction_memory()
    assert own.shape == student.shape
    assert own.data_ptr() != student.data_ptr()


@pytest.mark.parametrize("overwrite", [False, True])
def test_no_direction_takes_no_memory(overwrite):
    assert batch(torch.randn(2, 3), wanted=False, overwrite=overwrite).direction_memory() is None


def test_the_memory_of_a_transposed_student_has_its_rows_together():
    memory = batch(torch.randn(3, 2).T, wanted=True).direction_memory()
    assert (memory.shape, memory.stride()) == ((2, 3), (3, 1))


def test_a_truncated_teacher_has_four_parts_in_the_order_of_its_fields():
    log_probs, indices, known = torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.long), torch.zeros(2)
    parts = parts_of(TopK(log_probs, indices, rest_log_probs=known))
    assert [part is expected for part, expected in zip(parts, (log_probs, indices, None, known), strict=True)] == [
        True
    ] * 4
    assert parts_of(log_probs) == (log_probs,)


def test_unit_stride_keeps_the_numbers_and_copies_only_what_it_must():
    wide = torch.randn(3, 8)
    assert unit_stride(wide[:, 2:6]).data_ptr() == wide[:, 2:6].data_ptr()
    for odd in (wide.T, wide[:, ::2], torch._neg_view(wide)):
        found = unit_stride(odd)
        assert found.stride(-1) == 1
        assert not found.is_neg()
        assert torch.equal(found, odd.resolve_neg())
