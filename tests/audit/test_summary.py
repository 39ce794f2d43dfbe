"""Means over all examples are those of the diagnosis."""

import pytest

from audit.cases import make_case
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.run import diagnose_files


def test_means_are_those_of_diagnose(tmp_path):
    case = make_case(tmp_path)
    sources, record = case.sources(), case.audit()
    diagnosis = diagnose_files(open_inputs(list(sources.students), sources.teacher, sources.labels))
    for audited, diagnosed in zip(record.students, diagnosis.students, strict=True):
        assert audited.blocked == diagnosed.blocked_examples
        for name in ("conditional_loss", "transfer_cost", "imitation_loss"):
            assert getattr(audited, name) == pytest.approx(diagnosed.all[name], rel=1e-9)


def test_every_pair_is_compared_once_the_earlier_student_first(tmp_path):
    record = make_case(tmp_path, students=3).audit()
    assert [(pair.before, pair.after) for pair in record.flips] == [(0, 1), (0, 2), (1, 2)]
    for pair in record.flips:
        change = record.students[pair.after].right - record.students[pair.before].right
        assert pair.won - pair.lost == change
        assert pair.accuracy_change == pytest.approx(change / record.examples)
        means = [record.students[number].margin for number in (pair.before, pair.after)]
        assert pair.margin_change == pytest.approx(means[1] - means[0], rel=1e-9)
