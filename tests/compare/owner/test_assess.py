"""Intervals and summaries are those of the answers and of the record, computed another way."""

import numpy as np
import pytest
from scipy import stats

from compare.cases import cell, comparison
from compare.owner.cases import CLASSES, SAMPLES, answered, correct_of
from quality.cases import answers_of
from tpkd.compare.owner.assess import KeptAnswers, assess
from tpkd.errors import InputError
from tpkd.quality.sampling import accuracy_interval, difference_interval


@pytest.fixture(scope="module")
def made():
    record, kept = answered({"ce": 1.0, "kd": 1.6, "tpkd": 1.5}, teacher=2.2, start=0.25)
    return record, kept, assess(record, kept)


def t_interval(values):
    return stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))


def test_accuracies_have_both_intervals(made):
    _, kept, found = made
    assert [method.objective for method in found.methods] == ["ce", "kd", "tpkd"]
    for method in found.methods:
        correct = correct_of(kept, method.objective)
        estimate = method.accuracy
        assert (estimate.mean, estimate.seeds) == (pytest.approx(correct.mean()), 3)
        assert (estimate.seed_low, estimate.seed_high) == pytest.approx(t_interval(correct.mean(1)))
        assert (estimate.sample_low, estimate.sample_high) == pytest.approx(accuracy_interval(correct.mean(0)))


def test_differences_are_paired_by_seed_and_by_sample(made):
    _, kept, found = made
    assert (found.reference, found.best) == ("ce", max(found.methods, key=lambda each: each.accuracy.mean).objective)
    for method in found.methods:
        for other, estimate in ((found.reference, method.minus_reference), (found.best, method.minus_best)):
            if other == method.objective:
                assert estimate is None
                continue
            differences = correct_of(kept, method.objective) - correct_of(kept, other)
            assert estimate.mean == pytest.approx(differences.mean())
            assert (estimate.seed_low, estimate.seed_high) == pytest.approx(t_interval(differences.mean(1)))
            assert (estimate.sample_low, estimate.sample_high) == pytest.approx(
                difference_interval(differences.mean(0))
            )


def test_the_teacher_is_one_network_on_the_same_samples(made):
    _, kept, found = made
    right = kept.teacher.correct
    assert found.teacher.accuracy.mean == pytest.approx(right.mean())
    assert found.teacher.accuracy.seed_low is None
    differences = right - correct_of(kept, "ce")
    versus = found.teacher.minus_reference
    assert versus.mean == pytest.approx(differences.mean())
    assert (versus.seed_low, versus.seed_high) == pytest.approx(t_interval(differences.mean(1)))
    assert (versus.sample_low, versus.sample_high) == pytest.approx(difference_interval(differences.mean(0)))


def test_the_start_needs_no_answers_for_its_interval(made):
    right = np.arange(SAMPLES) < 100
    assert (made[2].start.sample_low, made[2].start.sample_high) == pytest.approx(accuracy_interval(right))


def test_summaries_are_means_over_seeds(made):
    _, kept, found = made
    for method in found.methods:
        qualities = [answers.quality for answers in kept.students[method.objective].values()]
        for name in ("log_loss", "brier_score", "calibration_error", "risk_coverage_area"):
            assert getattr(method.answers, name) == pytest.approx(np.mean([getattr(each, name) for each in qualities]))
        gaps = [each.confidence - each.accuracy for each in qualities]
        assert method.answers.confidence_gap == pytest.approx(np.mean(gaps))
        assert method.answers.risk == pytest.approx(np.mean([each.risk for each in qualities], axis=0))
        pooled = method.answers.reliability
        assert sum(each.examples for each in pooled) == 3 * SAMPLES
        right = sum(each.examples * (each.accuracy or 0) for each in pooled)
        assert right / (3 * SAMPLES) == pytest.approx(method.accuracy.mean)


def test_classes_and_confusions_are_those_of_the_answers(made):
    _, kept, found = made
    assert [(each.name, each.examples) for each in found.classes] == [(name, SAMPLES // 4) for name in CLASSES]
    answers = list(kept.students[found.best].values())
    best = found.find(found.best)
    for index in range(4):
        rates = [each.correct[each.labels == index].mean() for each in answers]
        assert best.answers.class_accuracy[index] == pytest.approx(np.mean(rates))
    counts = [confusion.counts[found.best] for confusion in found.confusions]
    assert counts == sorted(counts, reverse=True)
    for confusion in found.confusions:
        for name, by_seed in kept.students.items():
            times = [
                np.sum((each.labels == confusion.label) & (each.predictions == confusion.answer))
                for each in by_seed.values()
            ]
            assert confusion.counts[name] == pytest.approx(np.mean(times))
        theirs = (kept.teacher.labels == confusion.label) & (kept.teacher.predictions == confusion.answer)
        assert confusion.teacher == theirs.sum()


def test_what_was_not_kept_is_left_out():
    record, kept = answered({"ce": 1.0, "kd": 1.6}, teacher=2.0)
    nothing = assess(record, KeptAnswers({}))
    assert (nothing.classes, nothing.confusions) == ((), ())
    assert [method.answers for method in nothing.methods] == [None, None]
    assert nothing.methods[0].accuracy.seed_low is not None
    assert nothing.methods[0].accuracy.sample_low is None
    assert nothing.teacher.answers is None
    assert nothing.teacher.accuracy.sample_low == pytest.approx(accuracy_interval(kept.teacher.correct)[0], abs=1e-9)
    one_lost = {name: dict(list(by_seed.items())[:-1]) for name, by_seed in kept.students.items() if name == "kd"}
    some = assess(record, KeptAnswers({**kept.students, **one_lost}, kept.teacher))
    assert [method.answers is None for method in some.methods] == [False, True]
    assert some.methods[1].minus_reference.sample_low is None
    assert [each.name for each in some.classes] == ["0", "1", "2", "3"]


def test_seeds_that_only_one_method_has_do_not_enter_a_difference():
    record, kept = answered({"ce": 1.0, "kd": 1.6})
    more = answers_of(99, rows=SAMPLES, skill=1.6)
    cells = (*record.cells, cell("kd", 9, more.quality.accuracy))
    kept = KeptAnswers({**kept.students, "kd": {**kept.students["kd"], 9: more}})
    found = assess(comparison(cells), kept).find("kd").minus_reference
    assert found.seeds == 3
    differences = correct_of(kept, "kd")[:3] - correct_of(kept, "ce")
    assert (found.sample_low, found.sample_high) == pytest.approx(difference_interval(differences.mean(0)))


def test_without_a_finished_cell_there_is_nothing_to_say():
    found = assess(comparison([cell("ce", 1, None)]), KeptAnswers({}))
    assert (found.methods, found.best, found.reference) == ((), None, None)


def test_answers_about_other_samples_are_refused():
    record, kept = answered({"ce": 1.0, "kd": 1.6})
    kept.students["kd"][1] = answers_of(5, rows=SAMPLES - 1)
    with pytest.raises(InputError, match="expected the same test samples for all cells"):
        assess(record, kept)
