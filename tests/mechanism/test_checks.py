"""Statements are counted case by case, and what no data allowed is said."""

import json

import torch

from tpkd.mechanism.checks import Checks, Statement, scaling


def test_the_worst_case_of_a_statement_can_be_written_where_there_is_a_nan():
    checks = Checks({"a": Statement("a"), "b": Statement("b"), "c": Statement("c")}, 1e-12)
    checks.add("a", torch.tensor([torch.nan, 1.0], dtype=torch.float64))
    checks.add("b", torch.tensor([0.5, torch.nan], dtype=torch.float64))
    checks.add("b", torch.tensor([0.25], dtype=torch.float64))
    checks.add("c", torch.tensor([-torch.inf, 1.0], dtype=torch.float64))
    found = {check.name: (check.cases, check.violations, check.worst) for check in checks.records()}
    assert found == {"a": (2, 1, None), "b": (3, 1, None), "c": (2, 1, None)}
    for check in checks.records():
        json.dumps(check.worst, allow_nan=False)


def test_checks_count_what_breaks_a_statement():
    checks = Checks({"a": Statement("a"), "b": Statement("b", theorem=False, strict=True), "c": Statement("c")}, 1e-12)
    checks.add("a", torch.tensor([1.0, -1e-13, -1e-11], dtype=torch.float64))
    checks.add("a", torch.tensor([torch.nan, 2.0], dtype=torch.float64))
    checks.add("b", torch.tensor([1.0, 1e-13, 0.0], dtype=torch.float64))
    found = {check.name: (check.cases, check.violations, check.theorem) for check in checks.records()}
    assert found == {"a": (5, 2, True), "b": (3, 2, False), "c": (0, 0, True)}
    assert checks.records()[2].worst is None


def test_a_size_is_said_where_it_is_another():
    assert scaling("batches", 8, 8, "enough") == ()
    (found,) = scaling("batches", 8, 3, "few samples")
    assert (found.name, found.asked, found.used, found.reason) == ("batches", 8, 3, "few samples")
