"""The record of an audit survives a file."""

import numpy as np

from audit.cases import make_case
from tpkd.audit.record import AuditRecord


def test_it_survives_json(tmp_path):
    record = make_case(tmp_path).audit()
    assert AuditRecord.from_json(record.to_json()) == record
    assert AuditRecord.from_json((tmp_path / "audit" / "audit.json").read_text()) == record


def test_counts_are_of_the_examples(tmp_path):
    case = make_case(tmp_path)
    record = case.audit()
    assert record.examples == len(case.labels)
    answers = [logits.argmax(-1) for logits in case.students]
    taught = case.teacher.argmax(-1) == case.labels
    assert record.teacher_right == taught.sum()
    for student, answer in zip(record.students, answers, strict=True):
        right = answer == case.labels
        assert student.right == right.sum()
        assert student.teacher_only == (taught & ~right).sum()
        assert student.student_only == (right & ~taught).sum()
        assert student.same_answer == np.sum(answer == case.teacher.argmax(-1))
