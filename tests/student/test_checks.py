"""Logits are compared relative to their size, and NaN is never the same."""

import pytest
import torch

from tpkd.student.checks import MismatchError, check_same_logits

EXPECTED = torch.tensor([[100.0, -1.0], [3.0, 0.0]])


@pytest.mark.parametrize(("difference", "same"), [(0.0, True), (0.9e-3, True), (1.1e-3, False), (float("nan"), False)])
def test_differences_are_relative_to_the_largest_logit(difference, same):
    found = EXPECTED.double()
    found[1, 1] += difference
    if same:
        check_same_logits(found, EXPECTED, tolerance=1e-5, where="there")
        return
    with pytest.raises(MismatchError, match="there: expected the student's logits within 1e-05"):
        check_same_logits(found, EXPECTED, tolerance=1e-5, where="there")


def test_other_shapes_are_refused():
    with pytest.raises(MismatchError, match=r"expected logits \(2, 2\), found \(1, 2\)"):
        check_same_logits(EXPECTED[:1], EXPECTED, tolerance=1, where="there")
