"""Rows, masks and denominators, which every loss shares."""

import pytest
import torch

from tpkd.objectives.reduction import as_rows, denominator, logit_rows, reduce_rows, without_ignored


def test_rows_are_positions_with_classes_last():
    logits = torch.arange(24.0).reshape(2, 3, 4)  # two samples of four positions
    rows = logit_rows(logits)
    assert rows.shape == (8, 3)
    assert rows[5].tolist() == logits[1, :, 1].tolist()


def test_an_ignored_row_is_zero_whatever_it_held():
    student = torch.tensor([[1.0, 2.0, 3.0], [torch.nan, torch.inf, 0.0]], requires_grad=True)
    rows = as_rows(student, {}, torch.tensor([2, -100]), ignore_index=-100)
    assert rows.student.tolist() == [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]
    assert rows.valid.tolist() == [True, False]
    assert rows.labels.tolist() == [2, 0]
    reduce_rows(rows.student.sum(-1), rows, reduction="mean", num_items=None).backward()
    assert student.grad.tolist() == [[1.0] * 3, [0.0] * 3]


def test_without_ignored_keeps_what_is_valid():
    kept = without_ignored(torch.tensor([torch.nan, 2.0]), torch.tensor([False, True]))
    assert kept.tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("valid", "num_items", "expected"), [(None, None, 4), ([1, 0, 1, 0], None, 2), ([0] * 4, None, 1), (None, 7, 7)]
)
def test_the_denominator_counts_valid_rows_unless_it_is_given(valid, num_items, expected):
    mask = None if valid is None else torch.tensor(valid, dtype=torch.bool)
    assert int(denominator(4, mask, num_items)) == expected
