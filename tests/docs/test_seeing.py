"""The numbers that docs/seeing.md tells about real galleries are those of the records in `results/`."""

from pathlib import Path

import pytest

from tpkd.audit.record import AuditRecord
from tpkd.report.numbers import count, nats, points, probability, share

ROOT = Path(__file__).parents[2]
GALLERIES = ("cifar100", "clinc150")
PAGE = " ".join((ROOT / "docs" / "seeing.md").read_text().split())


def record_of(name):
    return AuditRecord.from_json((ROOT / "results" / f"audit-{name}.json").read_text())


@pytest.mark.parametrize("name", GALLERIES)
def test_students_are_those_of_the_record(name):
    record = record_of(name)
    for student in record.students:
        right, blocked = share(student.right / record.examples), share(student.blocked / record.examples)
        losses = nats(student.transfer_cost), nats(student.conditional_loss)
        cells = (f"`{student.name}`", right, blocked, *losses, count(student.teacher_only))
        assert f"| {' | '.join(cells)} |" in PAGE
    assert f"is right on {share(record.teacher_right / record.examples)}." in PAGE
    assert f"{count(record.examples)} test" in PAGE


@pytest.mark.parametrize("name", GALLERIES)
def test_flips_are_those_of_the_record(name):
    record = record_of(name)
    for pair in record.flips:
        names = " → ".join(f"`{record.students[number].name}`" for number in (pair.before, pair.after))
        cells = (names, count(pair.lost), count(pair.won), points(pair.accuracy_change), probability(pair.p_value))
        assert f"| {' | '.join(cells)} | {share(pair.margins_lowered)} |" in PAGE


def test_the_story_of_clinc150_is_that_of_the_record():
    record = record_of("clinc150")
    start, ce, kd, tpkd = record.students
    pairs = {(pair.before, pair.after): pair for pair in record.flips}
    assert start.blocked == 0
    assert f"{share(ce.blocked / record.examples)} of its examples are blocked" in PAGE
    assert f"conditional loss is still {nats(ce.conditional_loss)} nats" in PAGE
    assert f"only {share(kd.blocked / record.examples)} are blocked" in PAGE
    assert f"TPKD has the most, {share(tpkd.blocked / record.examples)}," in PAGE
    assert tpkd.blocked == max(student.blocked for student in record.students)
    assert f"down to {nats(tpkd.conditional_loss)} nats, near KD's {nats(kd.conditional_loss)}:" in PAGE
    last = pairs[2, 3]
    assert f"From KD to TPKD, {last.lost} answers are lost and {last.won} won" in PAGE
    assert f"only {share(last.margins_lowered)} are lower" in PAGE
    assert f"the least one is {nats(last.margin_change)} nats larger" in PAGE


def test_classes_with_most_won_answers_are_those_of_the_record():
    record = record_of("clinc150")
    pair = next(pair for pair in record.flips if (pair.before, pair.after) == (1, 2))
    most = sorted(pair.classes, key=lambda each: (-each.won, record.class_names[each.label]))[:3]
    first, second, third = (f"`{record.class_names[each.label]}` ({each.won})" for each in most)
    assert f"won in {first}, {second} and {third}, of 30 sentences each" in PAGE
    assert {each.examples for each in most} == {30}
