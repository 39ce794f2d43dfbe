"""Verdicts by hand: what an interval on either side of zero, or around it, makes of a claim."""

import pytest

from studies.comparison_cases import cell, comparison
from tpkd.report.bundle import ReportRecords
from tpkd.report.claims import NOT_SUPPORTED, SUPPORTED, UNDECIDED, claims_table
from tpkd.report.tables import text

SEEDS = (42, 43, 44)


def claims(**accuracies):
    cells = [
        cell(name.replace("_", "-"), seed, value)
        for name, values in accuracies.items()
        for seed, value in zip(SEEDS, values, strict=True)
    ]
    table = claims_table(ReportRecords(comparison(cells)))
    return {} if table is None else {text(row[0]): row for row in table.rows}


@pytest.mark.parametrize(
    ("kd", "verdict"),
    [
        ((0.80, 0.81, 0.80), SUPPORTED),  # 10, 10, 10.5 points below
        ((0.99, 0.98, 0.99), NOT_SUPPORTED),
        ((0.80, 0.99, 0.90), UNDECIDED),
        ((0.80, None, None), UNDECIDED),  # one seed says nothing about chance
    ],
)
def test_a_claim_about_seeds_is_decided_by_its_interval(kd, verdict):
    found = claims(tpkd=(0.90, 0.91, 0.905), kd=kd)
    assert list(found) == ["TPKD ends above KD"]
    assert found["TPKD ends above KD"][-1] == verdict


def test_numbers_are_those_of_the_paired_differences():
    row = claims(tpkd=(0.90, 0.92, 0.91), ce=(0.88, 0.89, 0.90))["TPKD ends above CE"]
    # Differences 2, 3, 1: mean 2, deviation 1, t(0.975, 2) = 4.3027.
    assert text(row[1]) == "TPKD − CE: +2.00"
    assert text(row[2]) == "-0.48 to +4.48"
    assert text(row[3]) == "3 seeds"
    assert row[4] == UNDECIDED


@pytest.mark.parametrize(
    ("plain", "verdict"),
    [
        ((0.901, 0.911, 0.9012), SUPPORTED),  # a tenth of a point above TPKD
        ((0.95, 0.96, 0.951), NOT_SUPPORTED),  # five points
        ((0.90, 0.93, 0.90), UNDECIDED),
    ],
)
def test_the_price_of_the_projection_is_held_against_half_a_point(plain, verdict):
    found = claims(tpkd=(0.90, 0.91, 0.90), tpkd_no_projection=plain)
    assert [row[-1] for name, row in found.items() if name.startswith("the projection costs little")] == [verdict]


def test_controls_are_to_be_below():
    found = claims(tpkd=(0.90, 0.91, 0.90), tpkd_no_ce=(0.85, 0.86, 0.851), safe_full_kl=(0.95, 0.96, 0.951))
    assert [row[-1] for row in found.values()] == [SUPPORTED, NOT_SUPPORTED]


def test_a_comparison_of_one_method_makes_no_claim():
    assert claims(tpkd=(0.9, 0.9, 0.9)) == {}
