"""The continuation against plain torch; what is observed is never learned from."""

import numpy as np
import pytest

import oracles
from mechanism.plain_training import PlainTraining
from oracles import conditional_loss
from tpkd.data.batches import TrainingBatches
from tpkd.data.loading import load_dataset
from tpkd.data.order import choose_views
from tpkd.mechanism.bench import open_bench
from tpkd.mechanism.continuation import OBJECTIVES, study_continuation
from tpkd.mechanism.record import ContinuationRecord


@pytest.fixture(scope="module")
def record(ce_run):
    return study_continuation(ce_run.config)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_first_iterations_agree_with_plain_training(ce_run, record, objective):
    bench = open_bench(ce_run.config)
    whole = bench.run.dataset
    update = whole.subset(np.flatnonzero(np.isin(whole.ids, record.update_ids)))
    batches = TrainingBatches(update, bench.run.preparation, seed=0, batch_size=64, num_samples=12 * 64)
    plain = PlainTraining(ce_run, 10)
    for number in range(4):
        plain.step(objective, batches[number].sample_ids.tolist(), batches[number].view_ids.tolist())
    logits, labels = plain.logits(record.observation_ids, record.observation_views)
    teachers = ce_run.cached(record.observation_ids, record.observation_views)
    expected = np.mean([conditional_loss(*case) for case in zip(logits, teachers, labels, strict=True)])
    (curve,) = (curve for curve in record.curves if curve.objective == objective)
    point = curve.points[2]
    assert point.iteration == 4
    # Four float32 iterations in another order of sums.
    assert point.conditional_loss == pytest.approx(expected, abs=5e-5)
    label_losses = [oracles.label_loss(*case) for case in zip(logits, labels, strict=True)]
    assert point.label_loss == pytest.approx(np.mean(label_losses), abs=5e-5)


def test_update_and_observation_samples_are_disjoint_and_of_the_training_pool(record):
    update, observed = set(record.update_ids), set(record.observation_ids)
    assert len(update) == len(record.update_ids)
    assert len(observed) == len(record.observation_ids)
    assert not update & observed
    assert update | observed <= set(load_dataset("digits", "train").ids.tolist())
    views = choose_views(0, 1, np.array(record.observation_ids), 8)
    assert record.observation_views == tuple(views.tolist())


def test_small_data_scale_the_sets_down_and_the_record_says_so(record):
    assert {(scaled.name, scaled.asked, scaled.used) for scaled in record.scalings} == {
        ("update samples", 12 * 64, 400),
        ("observation", 2048, 100),
    }


def test_enough_data_keep_the_sizes(ce_run):
    sizes = ("continuation.iterations=2", "continuation.observation=50", "continuation.points=[1, 8]")
    found = study_continuation(ce_run.studied(*sizes, "continuation.state=6"))
    assert found.scalings == ()
    assert (len(found.update_ids), len(found.observation_ids)) == (128, 50)
    assert found.state.name == "CE6"
    assert [point.iteration for point in found.curves[0].points] == [0, 1, 2]


def test_all_start_alike_and_end_by_their_own_directions(record):
    assert [curve.objective for curve in record.curves] == ["ce", "compensation-only", "tpkd"]
    ce, compensation, tpkd = record.curves
    assert ce.points[0] == compensation.points[0] == tpkd.points[0]
    assert len({curve.student_fingerprint for curve in record.curves}) == 3
    assert [point.iteration for point in tpkd.points] == [0, 1, 4, 12]
    assert record.start == tpkd.points[0].conditional_loss
    assert record.tpkd_end == tpkd.points[-1].conditional_loss
    assert record.tpkd_minus_ce == record.tpkd_end - ce.points[-1].conditional_loss
    assert record.tpkd_minus_compensation == record.tpkd_end - compensation.points[-1].conditional_loss
    assert record.tpkd_minus_ce < 0
    assert record.tpkd_minus_compensation < 0


def test_running_again_gives_the_same_bytes(ce_run, record):
    assert study_continuation(ce_run.config).to_json() == record.to_json()


def test_the_record_survives_json(record):
    assert ContinuationRecord.from_json(record.to_json()) == record


def test_repeats_are_the_continuations_of_the_seeds_that_follow(ce_run):
    sizes = ("continuation.iterations=3", "continuation.observation=50", "continuation.points=[1]")
    seen = []
    found = study_continuation(
        ce_run.studied(*sizes, "continuation.repeats=3"), on_progress=lambda done, of: seen.append((done, of))
    )
    alone = [study_continuation(ce_run.studied(*sizes, f"seed={seed}")) for seed in (0, 1, 2)]
    assert found.curves == alone[0].curves
    assert [(repeat.seed, repeat.curves) for repeat in found.repeats] == [(1, alone[1].curves), (2, alone[2].curves)]
    assert found.curves[0].points != found.repeats[0].curves[0].points
    assert found.differences("ce", "conditional_loss") == tuple(each.tpkd_minus_ce for each in alone)
    ends = [{curve.objective: curve.points[-1].label_loss for curve in each.curves} for each in alone]
    assert found.differences("ce", "label_loss") == tuple(end["tpkd"] - end["ce"] for end in ends)
    assert seen == [(done, 27) for done in range(1, 28)]
    assert alone[0].repeats == ()
