"""Verdicts by hand: what the rules make of records."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from compare.cases import cell, comparison
from demo.small_demo import small_demo
from tpkd.compare.claims import claims_table
from tpkd.compare.owner.assess import KeptAnswers, assess
from tpkd.compare.record import CellCurves, NetworkState, ReportRecords
from tpkd.compare.reporting import catalogue, read_records
from tpkd.compare.verdicts import NOT_ASKED, NOT_SUPPORTED, SUPPORTED, UNDECIDED
from tpkd.mechanism.record import ContinuationRepeat
from tpkd.quality.sampling import two_way_error
from tpkd.report.tables import text

SEEDS = tuple(range(42, 52))
SPREAD = tuple(0.0005 * (-1) ** seed for seed in SEEDS)


def around(mean, spread=SPREAD):
    return [mean + each for each in spread]


def records_of(start=None, assessment=None, **accuracies):
    cells = [
        cell(name.replace("_", "-"), seed, value)
        for name, values in accuracies.items()
        for seed, value in zip(SEEDS, values, strict=False)
    ]
    begun = None if start is None else NetworkState("mlp", "abc", start, 1.0)
    return ReportRecords(catalogue(), comparison(cells, start=begun), assessment=assessment)


def claims(**accuracies):
    table = claims_table(records_of(**accuracies))
    return {} if table is None else {text(row[0]): row for row in table.rows}


@pytest.mark.parametrize(
    ("kd", "verdict"),
    [
        (around(0.80), SUPPORTED),
        (around(0.99), NOT_SUPPORTED),
        ([0.80, 0.99] * 5, UNDECIDED),
        (around(0.80)[:9], "no verdict: 9 of 10 seeds"),
        (around(0.90, [0.0] * 10), "equal within 0.2 points"),
    ],
)
def test_a_claim_about_seeds_is_decided_by_the_rules(kd, verdict):
    found = claims(tpkd=around(0.90), kd=kd)
    assert list(found) == ["TPKD ends above KD"]
    assert found["TPKD ends above KD"][-1] == verdict


def test_numbers_are_those_of_the_paired_differences():
    row = claims(tpkd=(0.90, 0.92, 0.91), ce=(0.88, 0.89, 0.90))["TPKD ends above CE"]
    # Differences 2, 3, 1: mean 2, deviation 1, t(0.975, 2) = 4.3027.
    assert text(row[1]) == "TPKD − CE: +2.00"
    assert text(row[2]) == "-0.48 to +4.48"
    assert text(row[3]) == "3 seeds"


def test_where_cross_entropy_does_not_gain_nothing_is_asked():
    accuracies = {"tpkd": around(0.90), "kd": around(0.80), "ce": around(0.85)}
    for start, verdict in ((0.80, SUPPORTED), (0.90, NOT_ASKED), (0.85, NOT_ASKED)):
        assert {row[-1] for row in claims(start=start, **accuracies).values()} == {verdict}


def test_holms_correction_is_over_all_claims_about_accuracy():
    noisy = [0.0008 + 0.001 * (-1) ** seed for seed in SEEDS]  # p = 0.03 alone
    alone = claims(tpkd=around(0.9, noisy), kd=[0.9] * 10)
    beside = claims(tpkd=around(0.9, noisy), kd=[0.9] * 10, ce=[0.9] * 10)
    assert alone["TPKD ends above KD"][-1] == SUPPORTED
    assert beside["TPKD ends above KD"][-1] != SUPPORTED


@pytest.mark.parametrize(
    ("plain", "verdict"),
    [
        (around(0.901), SUPPORTED),  # a tenth of a point above TPKD
        (around(0.95), NOT_SUPPORTED),  # five points
        ([0.90, 0.91] * 5, UNDECIDED),
    ],
)
def test_the_price_of_the_projection_is_held_against_half_a_point(plain, verdict):
    found = claims(tpkd=[0.90] * 10, tpkd_no_projection=plain)
    assert [row[-1] for name, row in found.items() if name.startswith("the projection costs little")] == [verdict]


def test_controls_are_to_be_below():
    found = claims(tpkd=[0.90] * 10, tpkd_no_ce=around(0.85), safe_full_kl=around(0.95))
    assert [row[-1] for row in found.values()] == [SUPPORTED, NOT_SUPPORTED]


def test_a_comparison_of_one_method_makes_no_claim():
    assert claims(tpkd=(0.9, 0.9, 0.9)) == {}


def test_the_interval_over_samples_decides_where_it_is_wider():
    """Ten seeds agree to the digit, on twenty samples that others may replace."""
    right = {"tpkd": np.arange(20) < 12, "kd": np.arange(20) < 10}
    kept = {
        name: {seed: SimpleNamespace(labels=np.ones(20, int), correct=values.astype(float)) for seed in SEEDS}
        for name, values in right.items()
    }
    records = records_of(tpkd=[0.6] * 10, kd=[0.5] * 10)
    assert text(claims_table(records).rows[0][-1]) == SUPPORTED
    known = _claimed(records, kept)
    (row,) = claims_table(known).rows
    error = two_way_error(np.tile(right["tpkd"].astype(float) - right["kd"], (10, 1)))
    assert text(row[2]) == f"{100 * (0.1 - 2.2621572 * error):+.2f} to {100 * (0.1 + 2.2621572 * error):+.2f}"
    assert row[-1] == UNDECIDED


def _claimed(records, kept):
    from tpkd.compare.owner import assess as module

    pairs = module._Pairs({method.objective: method for method in records.comparison.methods}, kept)
    empty = assess(records.comparison, KeptAnswers({}))
    return replace(records, assessment=replace(empty, claimed=tuple(pairs.claimed())))


def with_curves(shares, blocked=None):
    curves = CellCurves((1, 2), (1.0, 0.5), (2.0, 1.0), (0.0, 0.0))
    return [
        cell("ce", 42 + place, 0.9, curves=replace(curves, blocked_share=(0.05, share)), final=blocked)
        for place, share in enumerate(shares)
    ]


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ((0.30, 0.31, 0.30, 0.29, 0.30), SUPPORTED),
        ((0.05, 0.051, 0.049, 0.05, 0.05), NOT_SUPPORTED),
        ((0.05, 0.15, 0.01, 0.05, 0.08), UNDECIDED),
        ((0.30, 0.31, 0.30, 0.29), "no verdict: 4 of 5 seeds"),
    ],
)
def test_blocking_grows_from_the_first_epoch_to_the_last(shares, verdict):
    (row,) = claims_table(ReportRecords(catalogue(), comparison(with_curves(shares)))).rows
    assert text(row[1]) == f"{100 * (np.mean(shares) - 0.05):+.2f} points".replace("+0.00", "0.00")
    assert row[-1] == verdict


@pytest.fixture(scope="module")
def demo():
    return read_records(small_demo().report.parent)


def verdicts(records, part):
    return [row[-1] for row in claims_table(records).rows if part in text(row[0])]


def test_what_remains_needs_a_noise_floor(demo):
    assert verdicts(demo, "knowledge remains") == ["no verdict: the noise floor was not measured"]


def test_identities_are_in_the_table_of_checks_alone(demo):
    assert demo.exact_head is not None
    assert verdicts(demo, "margin") == verdicts(demo, "exact step") == []


def test_pairs_of_iterations_are_counted(demo):
    state = demo.certificates.states[0]
    for positive, verdict in ((len(state.batches), SUPPORTED), (len(state.batches) - 1, NOT_SUPPORTED)):
        changed = replace(demo.certificates, states=(replace(state, positive_pairs=positive),))
        assert verdicts(replace(demo, certificates=changed), "survives backpropagation") == [verdict]


def test_a_continuation_is_held_against_both_losses(demo):
    def ending(conditional, label, repeats):
        by_objective = {"ce": (1.0, 1.0), "compensation-only": (1.0, 1.0), "tpkd": (1.0 + conditional, 1.0 + label)}
        curves = tuple(
            replace(
                curve,
                points=(
                    *curve.points[:-1],
                    replace(
                        curve.points[-1],
                        conditional_loss=by_objective[curve.objective][0],
                        label_loss=by_objective[curve.objective][1],
                    ),
                ),
            )
            for curve in demo.continuation.curves
        )
        others = tuple(ContinuationRepeat(seed, curves) for seed in range(1, repeats))
        return replace(demo, continuation=replace(demo.continuation, curves=curves, repeats=others))

    assert verdicts(ending(-0.1, 0.0, 10), "accumulates") == [SUPPORTED] * 2
    assert verdicts(ending(-0.1, 0.1, 10), "accumulates") == ["not supported: the label loss ends higher"] * 2
    assert verdicts(ending(0.1, -0.1, 10), "accumulates") == [NOT_SUPPORTED] * 2
    assert verdicts(ending(-0.1, 0.0, 9), "accumulates") == ["no verdict: 9 of 10 repeats"] * 2
    found = [text(row[1]) for row in claims_table(ending(-0.1, 0.1, 10)).rows if "accumulates" in text(row[0])]
    assert found == ["-0.100 and +0.100 nats"] * 2
