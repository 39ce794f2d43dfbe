"""The owner's sentences are true to the records."""

from dataclasses import replace

import pytest

from compare.owner.cases import records_of, with_estimate
from compare.owner.test_tables import network
from tpkd.compare.owner.reading import owner_sentences
from tpkd.compare.owner.record import NetworksRecord

ABOVE = {"seed_low": -0.3, "seed_high": -0.2, "sample_low": -0.3, "sample_high": -0.2}
OPEN = {"seed_low": -0.3, "seed_high": 0.2, "sample_low": -0.1, "sample_high": -0.05}
SKILLS = {"ce": 1.0, "kd": 1.1, "tpkd": 4.0}


def said(records):
    return " ".join(owner_sentences(records))


def others(**fields):
    """TPKD is best; its distance from the other two has these intervals."""
    records = records_of(SKILLS)
    for name in ("ce", "kd"):
        records = with_estimate(records, name, **(fields.get(name) or fields["both"]))
    return records


def test_the_best_is_named_or_that_it_cannot_be_told():
    assert "TPKD has the highest mean" in said(others(both=ABOVE))
    assert "and is above every other method." in said(others(both=ABOVE))
    assert "but no method can be told from it" in said(others(both=OPEN))
    mixed = said(others(ce=ABOVE, kd=OPEN))
    assert "It is above CE, but cannot be told from KD." in mixed


def test_the_difference_from_the_reference_has_its_wider_interval():
    records = with_estimate(
        records_of(SKILLS), "tpkd", mean=0.02, seed_low=0.01, seed_high=0.03, sample_low=-0.01, sample_high=0.05
    )
    sentence = "TPKD is 2.00 points above CE on average, but the wider of its two intervals (-1.00 to +5.00, over test"
    assert sentence in said(records)
    records = with_estimate(records, "tpkd", sample_low=0.015, sample_high=0.025)
    assert "and the wider of its two intervals (+1.00 to +3.00, over seeds) does not contain zero." in said(records)
    assert "TPKD is 2.00 points below CE" in said(with_estimate(records, "tpkd", mean=-0.02))
    assert "TPKD is equal to CE" in said(with_estimate(records, "tpkd", mean=0.0))


def test_one_seed_is_never_a_verdict():
    text = said(records_of(SKILLS, seeds=(1,)))
    assert "One seed per method does not say whether another run would give the same order." in text
    assert "Of these two students, that of TPKD is" in text
    assert "above every other" not in text


def test_one_method_is_not_compared():
    text = said(records_of({"tpkd": 2.0}))
    assert "highest mean" not in text
    assert "TPKD is right on" in text
    assert "% with other" in text
    assert "of the test samples." in said(records_of({"tpkd": 2.0}, seeds=(1,), kept=False, data=None))


@pytest.mark.parametrize(("teacher", "warned"), [(0.5, True), (8.0, False)])
def test_a_teacher_worse_than_labels_alone_is_named(teacher, warned):
    text = said(records_of({"ce": 2.0, "kd": 2.1}, teacher=teacher))
    assert ("The teacher is worse than the student that learned from labels alone" in text) == warned
    assert "may be chance. Imitating" not in text


def test_a_teacher_that_may_be_worse_by_chance():
    found = records_of({"ce": 2.0, "kd": 2.1}, teacher=0.5)
    versus = replace(found.assessment.teacher.minus_reference, seed_low=-0.9, seed_high=0.1)
    teacher = replace(found.assessment.teacher, minus_reference=versus)
    assert "though the difference may be chance" in said(
        replace(found, assessment=replace(found.assessment, teacher=teacher))
    )


def test_a_teacher_worse_than_the_start_is_named():
    assert "is worse than the student was before training (99.00 %)" in said(
        records_of({"ce": 2.0, "kd": 2.0}, teacher=2.0, start=0.99)
    )
    assert "before training" not in said(records_of({"ce": 2.0, "kd": 2.0}, teacher=2.0, start=0.1))


def test_weak_classes_mistakes_and_confidence_are_named():
    records = records_of(SKILLS)
    text, best = said(records), records.assessment.find("tpkd").answers
    names = [each.name for each in records.assessment.classes]
    weakest = min(range(4), key=lambda index: best.class_accuracy[index])
    assert f"TPKD is weakest on “{names[weakest]}” ({100 * best.class_accuracy[weakest]:.1f} %)" in text
    pair = records.assessment.confusions[0]
    assert f"Its most frequent mistake: “{names[pair.answer]}” for “{names[pair.label]}”" in text
    sure = replace(best, confidence_gap=0.05)
    methods = tuple(
        replace(each, answers=sure) if each.objective == "tpkd" else each for each in records.assessment.methods
    )
    text = said(replace(records, assessment=replace(records.assessment, methods=methods)))
    assert "TPKD is too sure: its confidence is 5.00 points above its accuracy on average." in text


def test_networks_are_compared():
    found = NetworksRecord("cpu", 2, "fp32", network("builtin:mlp", 1), network("builtin:resnet20", 10))
    assert (
        "The student takes 0.0040 MB, the teacher 0.040 MB (10 times as much); one sample takes 0.50 ms and 5 ms."
        in said(records_of(SKILLS, networks=found))
    )


def test_nothing_finished_nothing_said():
    records = records_of(SKILLS)
    assert owner_sentences(replace(records, assessment=None)) == []
