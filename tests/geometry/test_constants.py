import math

import numpy as np
import pytest

from tpkd.geometry import (
    alignment_bound,
    coefficient_constant,
    conditional_distortion_limit,
    general_step_limit,
    joint_distortion_limit,
    retention_bound,
)


def test_constants_of_100_classes_are_those_printed():
    assert retention_bound(100) == 100 / 198
    assert round(math.sqrt(retention_bound(100)), 4) == 0.7107
    assert round(conditional_distortion_limit(100), 6) == 34.957650
    assert round(joint_distortion_limit(100), 6) == 5.912499


@pytest.mark.parametrize("num_classes", [3, 4, 10, 100, 151936])
def test_relations_between_the_constants(num_classes):
    gamma, c = retention_bound(num_classes), alignment_bound(num_classes)
    assert 0.5 < gamma <= 0.75
    assert c >= 2 * math.sqrt(2) / 3
    assert conditional_distortion_limit(num_classes) == pytest.approx((1 + c) / (1 - c), rel=1e-9)
    assert conditional_distortion_limit(num_classes) == joint_distortion_limit(num_classes) ** 2


@pytest.mark.parametrize(
    ("label_weight", "beta"), [(4.0, 0.5), (1.0, 1.0), (0.6, 0.9), (1e6, 2.0), (0.1, 0.1), (0.5, 0.5)]
)
def test_coefficient_constant_is_the_smallest_eigenvalue_and_positive_under_its_condition(label_weight, beta):
    gamma = retention_bound(10)
    matrix = np.array([[label_weight, -0.5], [-0.5, beta * gamma]])
    constant = coefficient_constant(label_weight, beta, 10)
    assert constant == pytest.approx(np.linalg.eigvalsh(matrix)[0], rel=1e-6, abs=1e-12)
    assert (constant > 0) == (4 * label_weight * beta * gamma > 1)


def test_step_limit_and_its_refusals():
    constant = coefficient_constant(2.0, 3.0, 10)
    assert general_step_limit(2.0, 3.0, 10) == pytest.approx(constant / (3 * 9))
    with pytest.raises(ValueError, match=r"expected 4 \* label_weight \* beta \* gamma_K > 1"):
        general_step_limit(0.1, 0.1, 10)
    with pytest.raises(ValueError, match="expected positive"):
        coefficient_constant(0.0, 1.0, 10)
    with pytest.raises(ValueError, match="num_classes: expected a whole number of at least 3, got 2"):
        retention_bound(2)
