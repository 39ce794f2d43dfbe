"""The terminal has a row for each student, and the reading of the last."""

import io
from dataclasses import replace
from pathlib import PurePath

import pytest
from rich.console import Console

from diagnosis.files_of import write_files
from diagnosis.truncated_files import write_cut
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.next_steps import next_steps
from tpkd.diagnosis.reading import CAVEAT, read_student, read_trend, record_notes
from tpkd.diagnosis.run import diagnose_files
from tpkd.diagnosis.terminal import diagnosis_reading, diagnosis_table
from tpkd.report.numbers import share


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("files"))
    return diagnose_files(open_inputs([files.student, files.teacher], files.teacher, files.labels))


def test_rows_and_reading(record):
    assert diagnosis_table(record).row_count == len(record.students) == 2
    first, *others = next_steps(record)
    after = [f"What next: {first}", *others, CAVEAT]
    assert list(diagnosis_reading(record)) == [read_trend(record), *read_student(record.students[-1]), *after]


def test_how_often_both_are_right(record):
    text = printed(diagnosis_table(record))
    found = record.students[-1].competence
    assert f"right: share of right answers, of the teacher {share(found.teacher_accuracy)}" in " ".join(text.split())
    for student in record.students:
        row = next(line for line in text.splitlines() if PurePath(student.file).name in line)
        assert row.split("│")[-2].strip() == share(student.competence.student_accuracy)
    older = replace(record, students=tuple(replace(student, competence=None) for student in record.students))
    assert "right" not in printed(diagnosis_table(older))


def printed(table):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("cut"))
    return diagnose_files(open_inputs([files.student], write_cut(files, 2), files.labels))


def test_bounds_are_marked_and_the_note_comes_first(cut):
    text = printed(diagnosis_table(cut))
    row = next(line for line in text.splitlines() if "student.npy" in line)
    assert [cell.strip()[:1] for cell in row.split("│")[2:-2]] == ["≤", "≤", "≥", "≥", "0", "≥"]
    assert "examples that may be blocked" in " ".join(text.split())
    first, *_ = diagnosis_reading(cut)
    assert [first] == record_notes(cut)
    assert first.startswith("This teacher kept its top 2 of 6 classes: numbers marked ≤ are upper bounds")


def test_a_terminal_without_these_characters_gets_others(cut):
    text = printed(diagnosis_table(cut, ascii_only=True))
    assert "<= " in text
    assert ">= " in text
    assert not {"≤", "≥"} & set(text)


def test_a_whole_teacher_has_no_note_and_no_mark(record):
    assert record_notes(record) == []
    assert not {"≤", "≥", "~"} & set(printed(diagnosis_table(record)))
