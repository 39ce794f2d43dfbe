"""Native pairs against plain torch, and the restored state bit for bit."""

import numpy as np
import pytest
import torch

import oracles
from mechanism.plain_training import PlainTraining
from tpkd.geometry import alignment_bound, conditional_distortion_limit, joint_distortion_limit
from tpkd.mechanism.bench import open_bench
from tpkd.mechanism.certificates import OBJECTIVES, study_certificates
from tpkd.mechanism.record import CertificatesRecord
from tpkd.parameter_space import certify
from tpkd.training.step import take_step


@pytest.fixture(scope="module")
def record(ce_run):
    return study_certificates(ce_run.config)


@pytest.mark.parametrize(("position", "epoch", "number"), [(0, 2, 3), (1, 10, 0)])
def test_certificate_table_agrees_with_plain_training(ce_run, record, position, epoch, number):
    """tab:certificate: the ends of one native pair at each state, dropout and momentum included."""
    row = record.states[position].batches[number]
    teachers = ce_run.cached(row.sample_ids, row.view_ids)
    found = {}
    for objective in OBJECTIVES:
        plain = PlainTraining(ce_run, epoch)
        plain.step(objective, row.sample_ids, row.view_ids)
        logits, labels = plain.logits(row.sample_ids, row.view_ids)
        cases = zip(logits, teachers, labels, strict=True)
        found[objective] = np.mean([oracles.conditional_loss(*case) for case in cases])
    # One float32 iteration of each, in another order of sums.
    for objective in OBJECTIVES:
        assert row.conditional_loss[objective] == pytest.approx(found[objective], abs=1e-5)
    assert row.gain == pytest.approx(found["compensation-only"] - found["tpkd"], abs=2e-5)
    assert row.gain > 1e-4


def test_spectra_are_those_of_the_snapshot(ce_run, record):
    row = record.states[1].batches[2]
    plain = PlainTraining(ce_run, 10)
    images, labels = plain.images(row.sample_ids, row.view_ids)
    teachers = torch.from_numpy(ce_run.cached(row.sample_ids, row.view_ids))
    found = certify(plain.model, images, teachers, labels)
    for pair, expected in ((row.conditional, found.conditional), (row.joint, found.joint)):
        # Micro-batches of eight sum float32 products in another order.
        assert pair.distortion_ratio == pytest.approx(expected.distortion_ratio, rel=1e-4)
        assert pair.inner_product == pytest.approx(expected.inner_product, rel=1e-4)
        assert pair.cosine == pytest.approx(expected.cosine, rel=1e-6)
        assert pair.passes == (pair.distortion_ratio < pair.limit)


def test_counts_limits_and_theorem_inequalities(record):
    assert record.conditional_limit == conditional_distortion_limit(10)
    assert record.joint_limit == joint_distortion_limit(10)
    assert (record.batch_size, record.microbatch, record.native_microbatch, record.learning_rate) == (64, 8, 32, 0.1)
    assert record.violations == 0
    for state in record.states:
        assert len(state.batches) == 4
        assert state.conditional_passes == sum(row.conditional.passes for row in state.batches)
        assert state.joint_passes == sum(row.joint.passes for row in state.batches)
        assert state.positive_pairs == sum(row.gain > 0 for row in state.batches) == 4
        assert state.gain == pytest.approx(np.mean([row.gain for row in state.batches]))
        assert min(row.conditional.cosine for row in state.batches) >= alignment_bound(10)
        assert state.skipped_steps == 0
    assert [check.cases for check in record.checks][-1] == 8


def test_running_again_gives_the_same_bytes(ce_run, record):
    assert study_certificates(ce_run.config).to_json() == record.to_json()


def test_a_candidate_starts_from_the_very_state_of_the_snapshot(ce_run):
    bench = open_bench(ce_run.config)
    snapshot = bench.snapshot(10)
    saved = ce_run.state(10)
    batches = bench.batches(bench.run.dataset, batch_size=64, num_batches=2)
    for objective in ("tpkd", "ce"):
        take_step(bench.iterations(objective, batches), 1, batches[0])
        assert not torch.equal(bench.run.student.state_dict()["fc.weight"], saved["model"]["fc.weight"])
        bench.restore(snapshot)
        for name, value in bench.run.student.state_dict().items():
            assert torch.equal(value, saved["model"][name])
        momenta = bench.run.optimizer.state_dict()["state"]
        for index, entries in momenta.items():
            assert torch.equal(entries["momentum_buffer"], saved["optimizer"][f"{index}.momentum_buffer"])
        assert torch.equal(torch.get_rng_state(), saved["random"]["0.torch"])


def test_the_record_survives_json(record):
    assert CertificatesRecord.from_json(record.to_json()) == record
