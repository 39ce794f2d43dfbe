"""The studies take TPKD's coefficient from the settings of the objective, and say it where it is not the paper's."""

import json

import numpy as np
import pytest

import oracles
from mechanism.ce_run import TrainedRun
from mechanism.plain_training import PlainTraining
from tpkd.config.loading import resolve_config
from tpkd.errors import InputError
from tpkd.mechanism.certificates import OBJECTIVES, study_certificates
from tpkd.mechanism.continuation import study_continuation
from tpkd.mechanism.exact_head import study_exact_head
from tpkd.mechanism.record import CertificatesRecord, ContinuationRecord, ExactHeadRecord
from tpkd.mechanism.tables import study_table
from tpkd.training.loop import train

BETA = 1.5

SMALL = {
    "study.certificates.batches": 1,
    "study.exact_head.batches": 1,
    "study.continuation.iterations": 2,
    "study.continuation.points": [0, 1, 2],
}


def with_beta(ce_run: TrainedRun, **betas: float):
    settings = {name.replace("_", "-"): {"objective.settings": {"beta": beta}} for name, beta in betas.items()}
    return ce_run.changed(**SMALL, methods=json.dumps(settings))


@pytest.fixture(scope="module")
def config(ce_run):
    return with_beta(ce_run, tpkd=BETA)


def test_native_pairs_step_with_the_coefficient_of_the_settings(ce_run, config):
    record = study_certificates(config)
    assert record.beta == BETA
    assert record.violations == 0
    row = record.states[0].batches[0]
    teachers, found = ce_run.cached(row.sample_ids, row.view_ids), {}
    for objective in OBJECTIVES:
        plain = PlainTraining(ce_run, 2)
        plain.step(objective, row.sample_ids, row.view_ids, beta=BETA)
        logits, labels = plain.logits(row.sample_ids, row.view_ids)
        cases = zip(logits, teachers, labels, strict=True)
        found[objective] = np.mean([oracles.conditional_loss(*case) for case in cases])
        assert row.conditional_loss[objective] == pytest.approx(found[objective], abs=1e-5)
    usual = study_certificates(ce_run.changed(**SMALL)).states[0].batches[0]
    assert row.gain > 2 * usual.gain > 0
    assert row.conditional.inner_product == pytest.approx(usual.conditional.inner_product * BETA / 0.5, rel=1e-6)
    assert row.joint.limit == record.joint_limit < usual.joint.limit


def test_the_continuation_steps_with_the_coefficient_of_the_settings(ce_run, config):
    record, usual = study_continuation(config), study_continuation(ce_run.changed(**SMALL))
    assert (record.beta, usual.beta) == (BETA, 0.5)
    ends = {curve.objective: curve.student_fingerprint for curve in record.curves}
    usual_ends = {curve.objective: curve.student_fingerprint for curve in usual.curves}
    assert [name for name in ends if ends[name] == usual_ends[name]] == ["ce"]
    assert record.tpkd_minus_ce < usual.tpkd_minus_ce < 0


def test_exact_steps_take_the_coefficient_and_check_the_general_bound_alone(ce_run, config):
    record, usual = study_exact_head(config), study_exact_head(ce_run.changed(**SMALL))
    assert (record.beta, usual.beta) == (BETA, 0.5)
    assert record.violations == 0
    statements = {check.name: check for check in record.checks}
    assert "cosine" not in statements
    assert record.cosine_bound is None
    for name in ("alignment", "descent"):
        assert "c_{w,beta}" in statements[name].statement
        assert statements[name].cases == 2 * record.batch_size
        assert statements[name].worst >= 0
    assert "cosine" in {check.name for check in usual.checks}
    row = record.states[0].batches[0]
    # To first order a gain is proportional to the coefficient.
    assert row.gain == pytest.approx(usual.states[0].batches[0].gain * BETA / 0.5, rel=0.05)
    assert row.conditional_loss["compensation-only"] == pytest.approx(row.conditional_loss["ce"], abs=1e-12)
    assert row.lost_examples["tpkd"] == 0


def test_a_step_beyond_the_general_limit_is_not_claimed_to_descend(ce_run):
    record = study_exact_head(with_beta(ce_run, tpkd=40.0))
    (descent,) = (check for check in record.checks if check.name == "descent")
    assert (descent.cases, descent.worst) == (0, None)


def test_the_coefficient_of_a_run_of_tpkd_itself_is_taken(ce_run, tmp_path):
    settings = {"objective": {"name": "tpkd", "settings": {"beta": BETA}}, "output": str(tmp_path / "run")}
    short = {"snapshots": [1], "epochs": 1, "study": {"continuation": {"iterations": 1}}}
    config = resolve_config(ce_run.config.model_dump(mode="json") | settings | short)
    train(config)
    assert study_continuation(config).beta == BETA


def test_one_coefficient_for_all(ce_run):
    with pytest.raises(
        InputError, match=r"compensation-only: objective\.settings\.beta: expected 1\.5 as for tpkd, found 0\.5"
    ):
        study_certificates(with_beta(ce_run, tpkd=BETA, compensation_only=0.5))


@pytest.mark.parametrize("beta", [0.0, -1.0])
def test_a_coefficient_without_a_claim_is_refused(ce_run, beta):
    with pytest.raises(InputError, match=r"tpkd: objective\.settings\.beta: expected a positive"):
        study_certificates(with_beta(ce_run, tpkd=beta))


@pytest.mark.parametrize(
    ("study", "kind"),
    [
        (study_exact_head, ExactHeadRecord),
        (study_certificates, CertificatesRecord),
        (study_continuation, ContinuationRecord),
    ],
)
def test_records_and_tables_say_a_coefficient_that_is_not_the_papers(ce_run, config, study, kind):
    record = study(config)
    assert record.to_dict()["beta"] == BETA
    assert kind.from_json(record.to_json()) == record
    assert any("β = 1.5" in note for note in study_table(record, str).notes)
    usual = study(ce_run.changed(**SMALL))
    # A record without the key is one of the paper's coefficient, as older ones are.
    assert "beta" not in usual.to_dict()
    assert kind.from_json(usual.to_json()) == usual
    assert not any("β" in note for note in study_table(usual, str).notes)
