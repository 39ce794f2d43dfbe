"""The page is one self-contained, accessible file; names are escaped and every number is the record's."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from diagnosis.files_of import write_files
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.page import diagnosis_page
from tpkd.diagnosis.reading import read_student, read_trend
from tpkd.diagnosis.run import diagnose_files
from tpkd.report.numbers import FORMATS

EVIL = '<script>alert("x")</script>'
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Elements in order, the text of each `data`, and whether tags are balanced."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.numbers, self.open, self.ids = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag not in VOID:
            self.open.append(tag)
        if tag == "data":
            self.numbers.append([attributes["data-path"], attributes["value"], ""])

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
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
    for sentence in [*read_student(record.students[-1]), read_trend(record)]:
        assert f"<p>{sentence.replace('<', '&lt;').replace('>', '&gt;').replace(chr(39), '&#39;')}</p>" in text


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
