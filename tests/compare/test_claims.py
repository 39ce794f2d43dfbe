"""Verdicts by hand: what an interval on either side of zero, or around it, makes of a claim."""

from dataclasses import replace

import pytest

from compare.cases import cell, comparison
from demo.small_demo import small_demo
from tpkd.compare.claims import NOT_SUPPORTED, SUPPORTED, UNDECIDED, claims_table
from tpkd.compare.record import ReportRecords
from tpkd.compare.reporting import catalogue, read_records
from tpkd.report.tables import text

SEEDS = (42, 43, 44)


def claims(**accuracies):
    cells = [
        cell(name.replace("_", "-"), seed, value)
        for name, values in accuracies.items()
        for seed, value in zip(SEEDS, values, strict=True)
    ]
    table = claims_table(ReportRecords(catalogue(), comparison(cells)))
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


@pytest.fixture(scope="module")
def demo():
    return read_records(small_demo().report.parent)


def verdicts(records, part):
    return [row[-1] for row in claims_table(records).rows if part in text(row[0])]


def with_blocked_shares(records, shares):
    split = records.blocking.splits[0]
    states = tuple(replace(split.states[0], blocked_share=share, blocked=int(1000 * share)) for share in shares)
    return replace(records, blocking=replace(records.blocking, splits=(replace(split, states=states),)))


def test_blocking_grows_only_if_every_state_has_more_than_the_one_before(demo):
    for shares, verdict in (
        ((0.1, 0.2, 0.3), SUPPORTED),
        ((0.1, 0.3, 0.2), NOT_SUPPORTED),
        ((0.2, 0.2, 0.3), NOT_SUPPORTED),
        ((0.0, 0.001, 0.029), UNDECIDED),
        ((0.001, 0.0, 0.03), NOT_SUPPORTED),
    ):
        assert verdicts(with_blocked_shares(demo, shares), "blocking grows") == [verdict]


def test_every_state_shows_its_blocked_share(demo):
    rows = claims_table(with_blocked_shares(demo, (0.1, 0.3, 0.2))).rows
    assert [text(row[1]) for row in rows if "blocking grows" in text(row[0])] == ["10.0 %, 30.0 %, 20.0 %"]


def test_knowledge_remains_only_if_it_does_in_every_blocked_pair(demo):
    split = demo.blocking.splits[0]
    for blocked, positive, verdict in (
        (30, 30, SUPPORTED),
        (30, 29, NOT_SUPPORTED),
        (29, 29, UNDECIDED),
        (2, 1, NOT_SUPPORTED),
        (0, 0, UNDECIDED),
    ):
        state = replace(split.states[-1], blocked=blocked, positive=positive)
        blocking = replace(demo.blocking, splits=(replace(split, states=(state,)),))
        assert verdicts(replace(demo, blocking=blocking), "knowledge remains") == [verdict]


def test_exact_steps_are_held_against_every_batch_and_example(demo):
    state = demo.exact_head.states[0]
    whole = {"tpkd": 0, "tpkd-no-projection": state.examples}
    for batches, lost, gain, kept in (
        (len(state.batches), whole, SUPPORTED, SUPPORTED),
        (len(state.batches) - 1, whole | {"tpkd": 1}, NOT_SUPPORTED, NOT_SUPPORTED),
        (len(state.batches), whole | {"tpkd-no-projection": state.examples - 1}, SUPPORTED, NOT_SUPPORTED),
    ):
        changed = replace(state, positive_batches=batches, lost_examples=lost)
        records = replace(demo, exact_head=replace(demo.exact_head, states=(changed,)))
        assert (verdicts(records, "an exact step"), verdicts(records, "it loses no margin")) == ([gain], [kept])


def test_pairs_of_iterations_and_the_continuation_speak_for_themselves(demo):
    state = demo.certificates.states[0]
    for positive, verdict in ((len(state.batches), SUPPORTED), (len(state.batches) - 1, NOT_SUPPORTED)):
        changed = replace(demo.certificates, states=(replace(state, positive_pairs=positive),))
        assert verdicts(replace(demo, certificates=changed), "survives backpropagation") == [verdict]
    for below, verdict in ((-0.1, SUPPORTED), (0.1, NOT_SUPPORTED)):
        changed = replace(demo.continuation, tpkd_minus_ce=below, tpkd_minus_compensation=-below)
        opposite = NOT_SUPPORTED if verdict == SUPPORTED else SUPPORTED
        assert verdicts(replace(demo, continuation=changed), "accumulates") == [verdict, opposite]
