"""The library's numbers for cases of the explorer: each is that of the function of its name."""

import math

import pytest
import torch

from tpkd.figures.cases import case_numbers, explorer_record
from tpkd.geometry import retention_bound
from tpkd.theory import frontier, is_blocked, min_confidence, transfer_cost

CASES = {case.name: case for case in explorer_record().cases}


def tensors(case):
    return tuple(
        torch.tensor(row, dtype=torch.float64) for row in (case.student_logits, case.teacher_logits, case.labels)
    )


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_the_public_functions(name):
    case, (z, zt, labels) = CASES[name], tensors(CASES[name])
    assert case.numbers["blocked"] is bool(is_blocked(z, zt, labels))
    for key, function in (("transfer_cost", transfer_cost), ("min_confidence", min_confidence)):
        assert case.numbers[key] == pytest.approx(function(z, zt, labels).item(), rel=1e-12)
    assert case.numbers["frontier_value"] == pytest.approx(frontier(z, zt, labels, case.budget).value.item(), rel=1e-12)


def test_the_presets_show_what_they_say():
    assert CASES["figure-1"].numbers["blocked"]
    assert CASES["figure-1"].numbers["min_confidence"] == pytest.approx(35 / 37)
    assert math.hypot(*CASES["figure-1"].numbers["safe_imitation"]) == pytest.approx(0, abs=1e-15)
    assert not CASES["open"].numbers["blocked"]
    assert CASES["tight"].numbers["retention"] == pytest.approx(retention_bound(4))
    assert max(CASES["teacher-wrong"].teacher_logits) != CASES["teacher-wrong"].teacher_logits[0]
    assert sum(share > 0 for share in CASES["mixup"].labels) == 2
    assert CASES["temperature"].temperature == 4
    assert CASES["figure-3"].numbers["compensation"] == pytest.approx(0.05)


def test_an_infinite_number_is_none():
    z, zt = torch.tensor([[[2.0, 0.0, 0.0, 0.0]], [[0.0, 2.0, 0.0, 0.0]]], dtype=torch.float64)
    half = torch.tensor([0.5], dtype=torch.float64)
    labels = torch.tensor([[0.5, 0.5, 0.0, 0.0]], dtype=torch.float64)
    (found,) = case_numbers(z, zt, labels, beta=0.5, temperature=1.0, position=half, budget=half)
    assert found["margins"][:2] == (None, None)
    assert not any(isinstance(value, float) and math.isinf(value) for value in found.values())
