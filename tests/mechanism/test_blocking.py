"""The blocking table is what plain loops over every image and view find, on both splits."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from mechanism.ce_run import TEACHER, VIEWS, TrainedRun, raw_digits
from oracles import conditional, conditional_loss
from tpkd.config.loading import load_config, resolve_config
from tpkd.data.configured import load_data
from tpkd.data.views import ViewRecipe
from tpkd.mechanism.bench import open_bench
from tpkd.mechanism.blocking import _blocked_set, _pool, study_blocking
from tpkd.mechanism.record import BlockingRecord
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.models.weights import load_weights
from tpkd.teacher.caching import build
from tpkd.theory import diagnose
from tpkd.training.loop import train


@pytest.fixture(scope="module")
def record(ce_run):
    return study_blocking(ce_run.config)


def plain_numbers(students, teachers, labels):
    """Blocked or not, conditional loss and D_inf of every pair."""
    blocked, losses, costs = [], [], []
    for student, teacher, label in zip(students, teachers, labels, strict=True):
        log_p, log_t = log_softmax(student), log_softmax(teacher)
        blocked.append(all(log_p[j] <= log_t[j] for j in range(len(log_p)) if j != label))
        losses.append(conditional_loss(student, teacher, label))
        costs.append(max(conditional(teacher, label) - conditional(student, label)))
    return np.array(blocked), np.array(losses), np.array(costs)


def teacher_logits(ce_run, split, ids, views, images):
    if split == "train":
        return ce_run.cached(ids, views)
    teacher = build_model(ModelSpec(TEACHER["model"], num_classes=10, options=TEACHER["options"]))
    load_weights(teacher, ce_run.root / "teacher" / "student.safetensors")
    with torch.no_grad():
        return teacher.eval()(images).half().double().numpy()  # as the cache of the training samples rounds


@pytest.mark.parametrize("position", [0, 1])
def test_states_table_agrees_with_plain_loops(ce_run, record, position):
    """tab:states, at the last state and for one view."""
    split, state = record.splits[position], record.splits[position].states[-1]
    ids, views = np.repeat(split.sample_ids, 8), np.tile(np.arange(8), len(split.sample_ids))
    raw, labels = raw_digits(split.split, ids)
    images = ViewRecipe(**VIEWS).render(raw, ids, views)
    with torch.no_grad():
        students = ce_run.student(10)(images).double().numpy()
    teachers = teacher_logits(ce_run, split.split, ids, views, images)
    blocked, losses, costs = plain_numbers(students, teachers, labels)
    assert state.pairs == len(ids) == state.views[0].pairs * 8
    assert state.blocked == blocked.sum() > 0
    assert state.blocked_share == blocked.mean()
    # Batches of other sizes round float32 logits differently, by some 1e-6.
    assert state.conditional_loss == pytest.approx(losses[blocked].mean(), rel=1e-4)
    assert state.transfer_cost == pytest.approx(costs[blocked].mean(), rel=1e-4)
    assert state.positive == (losses[blocked] > 1e-12).sum()
    third = state.views[3]
    chosen = blocked & (views == 3)
    assert third.blocked == chosen.sum()
    assert third.transfer_cost == pytest.approx(costs[chosen].mean(), rel=1e-4)


def test_both_splits_are_labelled_and_every_state_is_there(ce_run, record):
    assert [split.split for split in record.splits] == ["train", "test"]
    for split in record.splits:
        assert [state.state.name for state in split.states] == ["CE2", "CE6", "CE10"]
        assert len(set(split.sample_ids)) == len(split.sample_ids)
    train, test = (set(split.sample_ids) for split in record.splits)
    assert not train & test
    assert len(train) == 500
    assert len(test) == 150
    assert {(scaled.name, scaled.asked, scaled.used) for scaled in record.scalings} == {
        ("train.samples", 2000, 500),
        ("test.samples", 2000, 150),
    }


def test_blocking_grows_with_training_and_no_theorem_is_violated(record):
    for split in record.splits:
        assert split.states[0].blocked_share < split.states[-1].blocked_share
    assert record.violations == 0
    assert all(check.cases > 0 and check.violations == 0 for check in record.checks)


def test_fewer_samples_and_states_on_demand(ce_run):
    config = ce_run.studied("blocking.samples=20", "blocking.states=[6]", "blocking.splits=[train]", "seed=3")
    found = study_blocking(config)
    (split,) = found.splits
    assert len(split.sample_ids) == 20
    assert [state.state.epoch for state in split.states] == [6]
    assert found.scalings == ()
    assert set(split.sample_ids) <= set(study_blocking(ce_run.studied("blocking.splits=[train]")).splits[0].sample_ids)


def test_an_empty_blocked_set_has_no_means():
    certain, unsure = torch.tensor([[9.0, 0.0, 0.5]]), torch.tensor([[0.0, 0.0, 0.5]])
    found = diagnose(unsure.double(), certain.double(), torch.tensor([0]))
    empty = _blocked_set(found, torch.tensor([True]))
    assert (empty.pairs, empty.blocked, empty.blocked_share) == (1, 0, 0.0)
    assert empty.conditional_loss is None
    assert empty.transfer_cost is None


def test_a_teacher_that_is_only_a_cache_leaves_the_test_split_out(ce_run, tmp_path):
    config = ce_run.changed(teacher=f"{{cache: {ce_run.root}/cache}}")
    found = study_blocking(config, ce_run.copy(tmp_path / "run", config))
    assert [split.split for split in found.splits] == ["train"]
    assert "teacher.model" in found.missing["test"]


def test_given_answers_stand_for_a_teacher_that_is_only_a_cache(ce_run, tmp_path):
    views = VIEWS | {"num_views": 1}
    short = {"output": tmp_path / "run", "snapshots": [10], "study.blocking.samples": 40}
    named = ce_run.changed(views=views, **short, **{"teacher.cache": tmp_path / "cache"})
    build(named)
    train(named)
    expected = study_blocking(named).splits[1]
    whole = load_data(named, "test")
    images = ViewRecipe(**views).render(whole.inputs, whole.ids, np.zeros(len(whole), dtype=int))
    np.save(tmp_path / "answers.npy", teacher_logits(ce_run, "test", None, None, images).astype(np.float32))

    given = f"{{cache: {tmp_path}/cache, test_logits: {tmp_path}/answers.npy}}"
    config = resolve_config(named.model_dump(mode="json"), [f"teacher={given}"])
    found = study_blocking(config, TrainedRun(named, tmp_path).copy(tmp_path / "given", config))
    assert found.missing == {}
    assert found.splits[1].sample_ids == expected.sample_ids
    for ours, theirs in zip(found.splits[1].states, expected.states, strict=True):
        assert (ours.pairs, ours.blocked) == (40, theirs.blocked)
        assert ours.blocked > 0
        assert ours.conditional_loss == pytest.approx(theirs.conditional_loss, rel=1e-4)


def test_given_answers_to_one_view_do_not_stand_for_eight(ce_run, tmp_path):
    config = ce_run.changed(teacher=f"{{cache: {ce_run.root}/cache, test_logits: {tmp_path}/answers.npy}}")
    found = study_blocking(config, ce_run.copy(tmp_path / "run", config))
    assert "one view of 8" in found.missing["test"]


def test_the_record_survives_json(record):
    assert BlockingRecord.from_json(record.to_json()) == record


def test_a_half_precision_cache_rounds_the_answers_to_both_splits(ce_run):
    bench = open_bench(ce_run.studied("blocking.samples=40"))
    for split in ("train", "test"):
        pool, _ = _pool(bench, split)
        assert torch.equal(pool.teacher_logits, pool.teacher_logits.half().double()), split
    ids, views = np.repeat(pool.rows.dataset.ids, 8), np.tile(np.arange(8), len(pool.rows.dataset))
    raw, _ = raw_digits("test", ids)
    exact = teacher_logits(ce_run, "test", ids, views, ViewRecipe(**VIEWS).render(raw, ids, views))
    # Equal but where float32 sums in another order fall on the other side of a rounding.
    np.testing.assert_allclose(pool.teacher_logits.numpy(), exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("teacher", ["cached", "online"])
def test_full_precision_is_kept_in_both_splits(ce_run, tmp_path, teacher):
    cache = {"teacher.cache": tmp_path / "cache", "teacher.cache_dtype": "float32"}
    config = ce_run.changed(**(cache if teacher == "cached" else {"teacher.cache": "null"}))
    if teacher == "cached":
        build(config)
    bench = open_bench(config, ce_run.copy(tmp_path / "run", config))
    for split in ("train", "test"):
        answers = _pool(bench, split)[0].teacher_logits
        assert torch.equal(answers, answers.float().double()), split
        assert not torch.equal(answers, answers.half().double()), split


@pytest.mark.parametrize("domain", ["vision", "text"])
def test_the_papers_teachers_are_cached_in_full_precision(domain):
    config = load_config(Path(__file__).resolve().parents[2] / "configs" / f"paper-{domain}.yaml")
    assert config.teacher.cache_dtype == "float32"
