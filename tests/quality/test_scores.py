"""Every score against its definition, written as a loop over examples in plain Python."""

import itertools
import math
import random

import numpy as np
import pytest

from tpkd.quality.scores import (
    calibration_error,
    class_accuracies,
    confusion_counts,
    expected_errors,
    reliability,
    risk_coverage_area,
    risk_curve,
    score_rows,
)

ROWS, CLASSES = 200, 5


@pytest.fixture(scope="module")
def made():
    generator = np.random.default_rng(7)
    labels = generator.integers(0, CLASSES, ROWS)
    logits = 3 * generator.normal(size=(ROWS, CLASSES)) + 2 * np.eye(CLASSES)[labels]
    return logits, labels


def softmax(row):
    largest = max(row)
    weights = [math.exp(value - largest) for value in row]
    return [weight / math.fsum(weights) for weight in weights]


def test_rows_are_what_their_definitions_say(made):
    logits, labels = made
    found = score_rows(logits, labels)
    for place, (row, label) in enumerate(zip(logits.tolist(), labels.tolist(), strict=True)):
        probs = softmax(row)
        assert found.predictions[place] == probs.index(max(probs))
        # Double precision on both sides: sums of five numbers differ in their last bits.
        assert found.confidences[place] == pytest.approx(max(probs), rel=1e-12)
        assert found.log_losses[place] == pytest.approx(-math.log(probs[label]), rel=1e-12)
        brier = sum((prob - (index == label)) ** 2 for index, prob in enumerate(probs))
        assert found.brier[place] == pytest.approx(brier, rel=1e-9, abs=1e-15)


def test_a_certain_answer_has_no_loss_and_a_hopeless_one_an_infinite_loss():
    found = score_rows(np.array([[800.0, 0.0, 0.0], [-np.inf, 0.0, 0.0]]), np.array([0, 0]))
    assert found.log_losses.tolist() == [0.0, math.inf]
    assert found.brier.tolist() == [0.0, pytest.approx(1.5)]


def test_calibration_is_the_gap_of_each_bin_weighted_by_its_examples():
    source = random.Random(3)
    confidences = [source.uniform(0.2, 1.0) for _ in range(500)] + [1 / 15, 2 / 15, 1.0]
    correct = [float(source.random() < sure**2) for sure in confidences]
    expected = 0.0
    for number in range(15):
        inside = [
            (sure, right)
            for sure, right in zip(confidences, correct, strict=True)
            if number / 15 < sure <= (number + 1) / 15
        ]
        gap = abs(sum(sure - right for sure, right in inside))
        expected += gap / len(confidences)
    bins = reliability(np.array(confidences), np.array(correct))
    assert len(bins) == 15
    assert sum(each.examples for each in bins) == len(confidences)
    assert calibration_error(bins) == pytest.approx(expected, rel=1e-9)


def test_a_bin_includes_its_upper_end_and_an_empty_one_has_no_mean():
    bins = reliability(np.array([0.2, 0.4, 0.4]), np.array([1.0, 0.0, 1.0]), bins=5)
    assert [each.examples for each in bins] == [1, 2, 0, 0, 0]
    assert (bins[2].confidence, bins[2].accuracy) == (None, None)


def area_of_an_order(order, correct):
    errors, risks = 0.0, []
    for answered, place in enumerate(order, 1):
        errors += 1 - correct[place]
        risks.append(errors / answered)
    return sum(risks) / len(risks)


def test_the_area_is_that_of_the_sorted_examples():
    source = random.Random(5)
    confidences = [source.random() for _ in range(300)]
    correct = [float(source.random() < sure) for sure in confidences]
    order = sorted(range(300), key=lambda place: -confidences[place])
    errors = expected_errors(np.array(confidences), np.array(correct))
    assert risk_coverage_area(errors) == pytest.approx(area_of_an_order(order, correct), rel=1e-12)


def test_equal_confidences_count_as_the_mean_over_all_their_orders():
    confidences, correct = [0.9, 0.6, 0.6, 0.6, 0.6, 0.3], [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    areas = [area_of_an_order([0, *tied, 5], correct) for tied in itertools.permutations(range(1, 5))]
    errors = expected_errors(np.array(confidences), np.array(correct))
    assert risk_coverage_area(errors) == pytest.approx(sum(areas) / len(areas), rel=1e-12)


def test_the_curve_ends_at_the_error_rate_and_has_at_most_a_point_for_each_example():
    errors = expected_errors(np.linspace(1, 0.5, 7), np.array([1.0, 1, 0, 1, 1, 0, 1]))
    coverage, risk = risk_curve(errors, points=50)
    assert coverage == pytest.approx([k / 7 for k in range(1, 8)])
    assert risk == pytest.approx([0, 0, 1 / 3, 1 / 4, 1 / 5, 2 / 6, 2 / 7])
    coverage, risk = risk_curve(errors, points=2)
    assert coverage == pytest.approx((4 / 7, 1.0))
    assert risk == pytest.approx((1 / 4, 2 / 7))


def test_classes_and_confusions_are_counted(made):
    logits, labels = made
    predictions = score_rows(logits, labels).predictions
    rates = class_accuracies(predictions, labels, CLASSES + 1)
    pairs = confusion_counts(predictions, labels, CLASSES + 1)
    for label in range(CLASSES):
        answers = [
            answer for answer, right in zip(predictions.tolist(), labels.tolist(), strict=True) if right == label
        ]
        assert rates[label] == pytest.approx(answers.count(label) / len(answers))
        for answer in range(CLASSES):
            if answer != label:
                assert pairs.get((label, answer), 0) == answers.count(answer)
    assert math.isnan(rates[CLASSES])
    assert all(label != answer for label, answer in pairs)
