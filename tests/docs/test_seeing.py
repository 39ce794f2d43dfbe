"""The numbers that docs/seeing.md tells about real galleries are those of the records in `results/`."""

from pathlib import Path

import pytest

from tpkd.audit.record import AuditRecord
from tpkd.report.numbers import count, nats, points, share

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "seeing.md").read_text().split())


def record_of(name):
    return AuditRecord.from_json((ROOT / "results" / f"audit-{name}.json").read_text())


@pytest.mark.parametrize("name", ["cifar100", "clinc150"])
def test_students_are_those_of_the_record(name):
    record = record_of(name)
    for student in record.students:
        right, blocked = share(student.right / record.examples), share(student.blocked / record.examples)
        cells = (f"`{student.name}`", right, blocked, nats(student.transfer_cost), count(student.teacher_only))
        assert f"| {' | '.join(cells)} |" in PAGE


@pytest.mark.parametrize("name", ["cifar100", "clinc150"])
def test_flips_are_those_of_the_record(name):
    record = record_of(name)
    for pair in record.flips:
        names = " → ".join(f"`{record.students[number].name}`" for number in (pair.before, pair.after))
        cells = (names, count(pair.lost), count(pair.won), points(pair.accuracy_change), f"{pair.p_value:.3f}")
        assert f"| {' | '.join(cells)} | {share(pair.margins_lowered)} |" in PAGE
