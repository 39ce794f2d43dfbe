"""The page is one self-contained, accessible file; names are escaped and every number is the record's."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from diagnosis.files_of import write_files
from diagnosis.truncated_files import write_cut
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.next_steps import next_steps
from tpkd.diagnosis.page import diagnosis_page
from tpkd.diagnosis.reading import read_student, read_trend, record_notes
from tpkd.diagnosis.run import diagnose_files
from tpkd.report.numbers import FORMATS

EVIL = '<script>alert("x")</script>'
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Elements in order, the text of each `data`, and whether tags are balanced."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.numbers, self.open, self.ids, self.signs, self.before = [], [], [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if tag != "data":
            self.before = ""
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag not in VOID:
            self.open.append(tag)
        if tag == "data":
            self.signs.append(self.before.rstrip()[-1:])
            self.numbers.append([attributes["data-path"], attributes["value"], ""])

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.before = data
        if self.open and self.open[-1] == "data":
            self.numbers[-1][2] += data

    def count(self, tag):
        return sum(1 for name, _ in self.tags if name == tag)


def record_of(directory, *, students=1, **settings):
    files = write_files(directory, **settings)
    paths = [files.student]
    for number in range(1, students):
        paths.append(directory / f"$later_{number} & more.npy")
        np.save(paths[-1], files.z * (1 + number / 2))
    (directory / "names.txt").write_text("\n".join(["0" + EVIL, "$x^2$", "a & b", "ü", "'", '"'][: files.z.shape[1]]))
    inputs = open_inputs(paths, files.teacher, files.labels, class_names=directory / "names.txt")
    return diagnose_files(inputs)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return record_of(tmp_path_factory.mktemp("page"), students=3)


@pytest.fixture(scope="module")
def text(record):
    return diagnosis_page(record)


def test_tags_are_balanced_and_ids_unique(text):
    page = Page(text)
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)


def test_every_number_is_one_of_the_records(record, text):
    data = record.to_dict()
    kinds = {name: set() for name in FORMATS}
    page = Page(text)
    assert len(page.numbers) > 200
    for path, value, shown in page.numbers:
        found = data
        for key in path.split("."):
            found = found[int(key)] if isinstance(found, list) else found[key]
        assert value == ("" if found is None else repr(found)), path
        writers = [name for name, write in FORMATS.items() if write(found) == shown]
        assert writers, f"{path}: {shown!r} is no way to write {found!r}"
        kinds[writers[0]].add(path)
    assert all(kinds[name] for name in ("nats", "share", "count"))


def test_the_reading_is_on_the_page(record, text):
    for sentence in [*read_student(record.students[-1]), read_trend(record), *next_steps(record)]:
        assert f"<p>{sentence.replace('<', '&lt;').replace('>', '&gt;').replace(chr(39), '&#39;')}</p>" in text


def test_how_often_both_are_right_is_on_the_page(record, text):
    shown = {path for path, _, _ in Page(text).numbers}
    last = len(record.students) - 1
    assert {f"students.{last}.competence.{name}" for name in ("teacher_accuracy", "agreement")} <= shown
    assert {f"students.{place}.competence.student_accuracy" for place in range(last + 1)} <= shown
    older = replace(record, students=tuple(replace(student, competence=None) for student in record.students))
    assert "competence" not in diagnosis_page(older)


def test_what_was_left_out_is_on_the_page(record):
    text = diagnosis_page(replace(record, ignored=7, one_hot_labels=True))
    assert "7 rows with the label -100 are left out; 120 examples enter the numbers." in text
    assert "The labels are one-hot rows" in text


def test_names_are_escaped(text):
    assert EVIL not in text
    assert "0&lt;script&gt;" in text
    assert Page(text).count("script") == 1


def test_nothing_points_outside(text):
    for tag, attributes in Page(text).tags:
        for name in ("src", "href", "xlink:href", "action", "srcset", "data"):
            assert attributes.get(name, "#").startswith(("#", "data:,")), (tag, attributes)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert "default-src 'none'" in text


def test_figures_and_tables_are_named(text):
    page = Page(text)
    charts = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(charts) == 6 + 4
    for attributes in charts:
        assert attributes["role"] == "img"
        for target in attributes["aria-labelledby"].split():
            assert target in page.ids
    assert page.count("caption") == page.count("table")
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
    assert ("html", {"lang": "en"}) in page.tags


def test_one_student_has_no_trend(tmp_path):
    text = diagnosis_page(record_of(tmp_path))
    assert "Trend over the students" not in text
    assert Page(text).count("svg") == 6


def test_a_page_without_blocked_examples_says_none(tmp_path):
    page = Page(diagnosis_page(record_of(tmp_path, students=2, never_blocked=True)))
    shown = {path: text for path, _, text in page.numbers}
    assert shown["students.1.blocked.conditional_loss"] == "none"
    assert shown["students.1.blocked_examples"] == "0"
    assert not any(re.search(r"\bnan\b", text.lower()) for text in shown.values())


def test_a_page_without_pairs_says_why(record):
    last = replace(record.students[-1], pairs=None)
    assert "would not fit into bounded memory" in diagnosis_page(replace(record, students=(last,)))
    assert "no pair of classes has anything left" in diagnosis_page(
        replace(record, students=(replace(last, pairs=()),))
    )


def test_the_same_record_gives_the_same_page(record, text):
    assert diagnosis_page(record) == text


def cut_record(directory, **settings):
    """A truncated teacher that lacks the label's own in some rows, and two students."""
    files = write_files(directory, **settings)
    np.save(directory / "later.npy", files.z * 1.5)
    top = write_cut(files, 2, dtype=np.float16, without_label=range(0, 120, 5))
    return diagnose_files(open_inputs([files.student, directory / "later.npy"], top, files.labels))


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    return cut_record(tmp_path_factory.mktemp("cut"))


SIGNS = {
    "≤": r"blocked_share|confidence_bins\.\d+\.blocked|blocked_examples",
    "≥": r"(conditional_loss|transfer_cost|imitation_loss|min_confidence|decomposition\.conditional(_share)?|"
    r"frontier\.values\.\d+)",
    "~": r"(compensation|retention|update_cosine|pairs\.\d+\.(left|left_per_example|teacher))",
}


def test_every_number_has_the_sign_of_what_it_is_worth(cut):
    page, seen = Page(diagnosis_page(cut)), dict.fromkeys(SIGNS, 0)
    for (path, value, shown), found in zip(page.numbers, page.signs, strict=True):
        expected = next((sign for sign, paths in SIGNS.items() if re.search(rf"\.({paths})$", path)), "")
        if path.endswith("blocked_examples") and found != "≤":
            continue  # in a caption, where words say it
        if value == "" and expected:
            assert (found, shown) == ("", "none"), path
            continue
        found = found if found in SIGNS else ""
        assert found == expected, (path, shown)
        if found:
            seen[found] += 1
            exact, number = float(value), float(shown.replace(" %", "").replace(",", ""))
            number = number / 100 if "%" in shown else number
            assert number >= exact - 1e-12 if found == "≤" else number <= exact + 1e-12 or found == "~", path
    assert min(seen.values()) > 20


def test_the_note_comes_before_the_first_number_of_a_truncated_teacher(cut):
    text = diagnosis_page(cut)
    (note,) = record_notes(cut)
    assert text.index(f'<p class="notice">{note}</p>') < text.index('<section class="tiles')
    assert "top 2 of 6 classes" in note
    assert "stored float16 precision" in note


def test_a_truncated_page_speaks_of_what_may_be(cut):
    text = diagnosis_page(cut)
    assert '<td class="text">possibly</td>' in text
    assert '<td class="text">yes</td>' not in text
    assert "may be blocked</th>" in text
    assert f"over the {cut.students[-1].known_examples} with a known label" in text
    assert Page(text).open == []


def test_a_whole_page_has_no_mark_and_no_note(text):
    assert not set(Page(text).signs) & set(SIGNS)
    assert '<p class="notice">' not in text


@pytest.fixture(scope="module")
def soft_text(tmp_path_factory):
    directory = tmp_path_factory.mktemp("soft")
    files = write_files(directory)
    shares = 0.7 * np.eye(6)[files.y] + 0.3 * np.eye(6)[(files.y + 1) % 6]
    np.save(files.labels, shares)
    return diagnosis_page(diagnose_files(open_inputs([files.student], files.teacher, files.labels), beta=1.0))


def test_a_page_of_soft_labels_says_what_correct_means(soft_text):
    page = Page(soft_text)
    assert page.open == []
    assert soft_text.count('<p class="notice">') == 2
    assert "its probability of the correct classes" in soft_text
    assert "the correct class " not in soft_text
    assert "and every correct class at least, the teacher" in soft_text
    assert "students.0.decomposition.inside" in [path for path, _, _ in page.numbers]
    assert "Means by class (the one with the largest share of the label)" in soft_text
    assert "beta = 1" in soft_text
