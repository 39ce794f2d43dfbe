"""Exact head steps: margins, gains and bounds of the record against NumPy's pseudoinverse and an NNLS projection."""

import numpy as np
import pytest
import torch

import oracles
from mechanism.ce_run import VIEWS, raw_digits, train_runs
from tpkd.data.views import ViewRecipe
from tpkd.mechanism.exact_head import DIRECTIONS, study_exact_head
from tpkd.mechanism.record import ExactHeadRecord

GAMMA = 10 / 18


@pytest.fixture(scope="module")
def record(ce_run):
    return study_exact_head(ce_run.config)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    return train_runs(tmp_path_factory.mktemp("narrow"), hidden=12, epochs=2, snapshots=(1, 2))


def plain_directions(student, teacher, label):
    found = oracles.directions(student, teacher, label)
    h, u, d = found["label"], found["conditional"], found["safe"]
    axis = np.full(len(student), 1 / (len(student) - 1))
    axis[label] = -1.0
    p, t = (np.exp(logits - np.logaddexp.reduce(logits)) for logits in (student, teacher))
    return {
        "ce": h,
        "compensation-only": h + found["compensation"] * axis / 2,
        "tpkd-no-projection": h + u / 2,
        "tpkd": h + d / 2,
        "full-kl": h + p - t,
    }


def plain_steps(ce_run, epoch, row):
    """Start and end logits of every direction, with NumPy's pseudoinverse."""
    ids, views = np.array(row.sample_ids), np.array(row.view_ids)
    raw, labels = raw_digits("train", ids)
    student = ce_run.student(epoch)
    with torch.no_grad():
        features = student.outputs(ViewRecipe(**VIEWS).render(raw, ids, views)).features.double().numpy()
    X = np.hstack([features, np.ones((len(ids), 1))])
    A = np.vstack([student.classifier.weight.detach().double().numpy().T, student.classifier.bias.detach().double()])
    z, teachers = X @ A, ce_run.cached(ids, views)
    rows = [plain_directions(*case) for case in zip(z, teachers, labels, strict=True)]
    ends = {name: X @ (A - 0.01 * np.linalg.pinv(X) @ np.stack([row[name] for row in rows])) for name in DIRECTIONS}
    return {"start": z} | ends, teachers, labels


@pytest.mark.parametrize(("position", "epoch", "number"), [(0, 2, 0), (1, 10, 5)])
def test_exact_table_agrees_with_a_plain_pseudoinverse(ce_run, record, position, epoch, number):
    """tab:exact, for one batch of each state."""
    row = record.states[position].batches[number]
    logits, teachers, labels = plain_steps(ce_run, epoch, row)
    losses = {
        name: np.array([oracles.conditional_loss(*case) for case in zip(end, teachers, labels, strict=True)])
        for name, end in logits.items()
    }
    label_losses = {
        name: np.array([oracles.label_loss(*case) for case in zip(end, labels, strict=True)])
        for name, end in logits.items()
    }
    # Both in float64 from the same float32 features; NNLS stops at some 1e-12.
    for name in ("start", *DIRECTIONS):
        assert row.conditional_loss[name] == pytest.approx(losses[name].mean(), abs=1e-10)
        assert row.label_loss[name] == pytest.approx(label_losses[name].mean(), abs=1e-10)
        assert row.potential[name] == pytest.approx((4 * label_losses[name] + losses[name]).mean(), abs=1e-9)
    assert row.gain == pytest.approx((losses["ce"] - losses["tpkd"]).mean(), abs=1e-10)
    assert row.positive_examples == (losses["ce"] > losses["tpkd"]).sum()
    for name in DIRECTIONS:
        lost = 0
        for end, reference, label in zip(logits[name], logits["ce"], labels, strict=True):
            before, after = (row_logits[label] - oracles.others(row_logits, label) for row_logits in (reference, end))
            lost += bool((after < before - 1e-10).any())
        if name not in ("ce", "tpkd", "compensation-only"):
            assert row.lost_examples[name] == lost
    kept, cosines = [], []
    for z, teacher, label in zip(logits["start"], teachers, labels, strict=True):
        found = oracles.directions(z, teacher, label)
        h, u, d = found["label"], found["conditional"], found["safe"]
        g, v = 4 * h + u, h + d / 2
        kept.append(u @ d / (u @ u))
        cosines.append(g @ v / np.sqrt((g @ g) * (v @ v)))
    assert row.least_retention == pytest.approx(min(kept), rel=1e-8)
    assert row.least_cosine == pytest.approx(min(cosines), rel=1e-8)


def test_margins_hold_for_every_example_with_tpkd_and_fail_without_projection(record):
    for state in record.states:
        assert state.lost_examples["tpkd"] == 0
        assert state.lost_examples["compensation-only"] == 0
        assert state.lost_examples["tpkd-no-projection"] == state.examples
        assert state.positive_examples == state.examples
        assert state.positive_batches == len(state.batches)
        assert 0 <= state.margin_discrepancy < 1e-12
        assert 0 < state.execution_error < 1e-12
        assert state.compensation_difference < 1e-12
        assert state.least_retention >= GAMMA
        assert state.least_cosine >= np.sqrt(GAMMA)
        assert state.least_alignment_residual >= 0
        assert state.least_descent_slack >= 0


def test_every_theorem_inequality_holds_and_the_repeat_is_exact(record):
    assert record.violations == 0
    assert all(check.cases > 0 and check.violations == 0 for check in record.checks)
    cases = {check.name: check.cases for check in record.checks}
    examples = sum(state.examples for state in record.states)
    assert cases["margins"] == 9 * examples
    assert cases["descent"] == examples
    assert [state.repeat_difference for state in record.states] == [0.0, 0.0]


def test_states_are_early_and_late_and_batches_are_disjoint_and_shared(record):
    assert [state.state.name for state in record.states] == ["CE2", "CE10"]
    early, late = record.states
    assert [row.sample_ids for row in early.batches] == [row.sample_ids for row in late.batches]
    ids = [sample for row in early.batches for sample in row.sample_ids]
    assert len(ids) == len(set(ids)) == early.examples
    assert record.candidate_steps == 5 * 2 * len(early.batches)
    (scaled,) = record.scalings
    assert (scaled.name, scaled.asked, scaled.used) == ("batches", 32, 500 // 64)


def test_narrow_features_give_smaller_batches_and_the_record_says_so(narrow):
    record = study_exact_head(narrow.config)
    assert record.batch_size <= 13
    (scaled,) = (scaled for scaled in record.scalings if scaled.name == "batch_size")
    assert (scaled.asked, scaled.used) == (64, record.batch_size)
    assert record.violations == 0
    assert len(record.states[0].batches) == 32


def test_step_size_and_sizes_are_configuration(ce_run, record):
    sizes = ("exact_head.batches=2", "exact_head.batch_size=16", "exact_head.states=[6]", "exact_head.step_size=0.02")
    found = study_exact_head(ce_run.studied(*sizes))
    assert found.scalings == ()
    assert [len(row.sample_ids) for row in found.states[0].batches] == [16, 16]
    # The first rows of both are the same samples, and a gain is nearly proportional to the step.
    assert found.states[0].batches[0].sample_ids == record.states[0].batches[0].sample_ids[:16]
    small = study_exact_head(ce_run.studied(*sizes[:3], "exact_head.step_size=0.01"))
    assert found.states[0].gain == pytest.approx(2 * small.states[0].gain, rel=0.05)


def test_the_record_survives_json(record):
    assert ExactHeadRecord.from_json(record.to_json()) == record
