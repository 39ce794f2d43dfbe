import dataclasses

import pytest
import torch

from strategies import make_pairs, one_positive_deviation
from tpkd.geometry import retention_bound, split
from tpkd.theory import (
    blocking_gap,
    ce_only_optimum,
    compensation_bounds,
    fixed_length_optimum,
    frontier,
    frontier_ends,
    is_blocked,
    is_budget_feasible,
    joint_alignment,
    local_clipped_loss,
    log_transfer_path,
    min_confidence,
    min_log_odds,
    quadratic_optimum,
    relation_ball_slack,
    removed_signal,
    retention,
    squared_residuals,
    strict_blocking_log_odds,
    transfer_cost,
    transfer_endpoint,
)
from tpkd.theory.diagnosis import diagnose_pair
from tpkd.theory.pair import split_pair

STATEMENTS = {
    "is_blocked": is_blocked,
    "is_blocked, turned round": lambda z, zt, y: is_blocked(zt, z, y),
    "blocking_gap": lambda z, zt, y: blocking_gap(z.flip(0), z, zt, y),
    "strict_blocking_log_odds": strict_blocking_log_odds,
    "transfer_cost": transfer_cost,
    "min_confidence": min_confidence,
    "min_log_odds": min_log_odds,
    "transfer_endpoint": transfer_endpoint,
    "log_transfer_path": lambda z, zt, y: log_transfer_path(z, zt, y, torch.tensor([[0.0], [0.3], [1.0]])),
    "ce_only_optimum": ce_only_optimum,
    "frontier": lambda z, zt, y: frontier(z, zt, y, torch.tensor([[0.0], [1e-3], [0.3], [2.0], [torch.inf]])),
    "frontier_ends": frontier_ends,
    "is_budget_feasible": lambda z, zt, y: is_budget_feasible(
        split(zt, y).log_conditional, z, y, torch.tensor([[1.0], [3.0], [torch.inf]])
    ),
    "retention": retention,
    "removed_signal": removed_signal,
    "local_clipped_loss": lambda z, zt, y: local_clipped_loss(z.flip(0), z, zt, y),
    "diagnose_pair": lambda z, zt, y: diagnose_pair(split_pair(z, zt, y)),
}


def ruling_out_more(logits):
    """The same predictions among two classes more, the first and the last, which have no probability."""
    nothing = torch.full((*logits.shape[:-1], 1), -torch.inf, dtype=logits.dtype)
    return torch.cat([nothing, logits, nothing], dim=-1)


def fields(result):
    if isinstance(result, torch.Tensor):
        return {"value": result}
    values = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("kind", ["random", "ties", "blocked", "certain", "equal-conditional"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_class_that_both_rule_out_counts_as_not_there(name, kind):
    student, teacher, labels = make_pairs(kind, 50, 6, seed=0)
    expected = fields(STATEMENTS[name](student, teacher, labels))
    found = fields(STATEMENTS[name](ruling_out_more(student), ruling_out_more(teacher), labels + 1))
    for field, value in expected.items():
        among_all = found[field]
        if among_all.shape != value.shape:
            among_all = among_all[..., 1:-1]
        torch.testing.assert_close(among_all, value, rtol=1e-11, atol=1e-12, msg=lambda text, f=field: f"{f}: {text}")


def shifted_pairs(num_classes, dtype):
    """Students and teachers that differ by a common shift and the label's logit: r = q, but for rounding."""
    student, teacher, labels = make_pairs("equal-conditional", 200, num_classes, seed=0, dtype=dtype)
    shift = torch.linspace(-5, 5, 200, dtype=dtype).unsqueeze(-1)
    return student, teacher + shift, labels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_classes", [3, 10, 1000])
def test_equal_up_to_rounding_answers_as_equal(num_classes, dtype):
    """A share of nothing is 1, whichever way the last bit of r and q fell."""
    student, teacher, labels = shifted_pairs(num_classes, dtype)
    for field, value in fields(retention(student, teacher, labels)).items():
        assert (value == 1).all(), field
    for field, value in fields(removed_signal(student, teacher, labels)).items():
        assert (value == 0).all(), field
    assert (relation_ball_slack(student, teacher, labels) == 0).all()
    assert (diagnose_pair(split_pair(student, teacher, labels)).retention == 1).all()


@pytest.mark.parametrize("num_classes", [3, 10, 1000])
def test_a_small_difference_is_not_taken_for_rounding(num_classes):
    """The tight case at a billionth: protection keeps gamma_K of it, not all."""
    case = one_positive_deviation(num_classes, size=1e-9)
    pair = case.student.unsqueeze(0), case.teacher.unsqueeze(0), torch.tensor([case.label])
    assert retention(*pair).descent_share.item() == pytest.approx(retention_bound(num_classes), rel=1e-4)
    assert diagnose_pair(split_pair(*pair)).retention.item() == pytest.approx(retention_bound(num_classes), rel=1e-4)


NUMBERS = [
    transfer_cost,
    min_confidence,
    strict_blocking_log_odds,
    transfer_endpoint,
    frontier_ends,
    retention,
    relation_ball_slack,
    compensation_bounds,
    quadratic_optimum,
    lambda z, zt, y: fixed_length_optimum(z, zt, y, 1.0),
    lambda z, zt, y: frontier(z, zt, y, 0.3),
    joint_alignment,
    squared_residuals,
]


@pytest.mark.parametrize("statement", NUMBERS)
def test_numbers_of_a_nan_are_nan(statement):
    """Not 0 or 1, which would say that nothing is left to learn."""
    student, teacher, labels = make_pairs("random", 4, 6, seed=1)
    student[1, (labels[1] + 1) % 6] = torch.nan
    for field, value in fields(statement(student, teacher, labels)).items():
        rows = value.isnan().reshape(4, -1).all(-1)
        assert rows.tolist() == [False, True, False, False], field


def test_what_one_alone_rules_out_counts():
    """A student that rules out what its teacher does not needs certainty; the other way round it is not blocked."""
    whole, part = torch.tensor([[2.0, 1.0, 0.0, 0.5]]), torch.tensor([[2.0, 1.0, 0.0, -torch.inf]])
    label = torch.tensor([0])
    assert transfer_cost(part, whole, label).tolist() == [torch.inf]
    assert min_confidence(part, whole, label).tolist() == [1.0]
    assert not is_blocked(whole, part, label).any()
