"""The owner's page: what matters to its owner first, the paper last, every number a record's."""

import re
import shutil
from dataclasses import replace

import pytest

from compare.owner.cases import records_of
from demo.small_demo import small_demo
from diagnosis.test_page import Page
from tpkd.compare.page import comparison_page, page_of_owner, report_files
from tpkd.compare.record import SELECTED, PaperProtocol
from tpkd.compare.reporting import read_records, write_report
from tpkd.record import Record
from tpkd.report.numbers import FORMATS

EVIL = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def records():
    return read_records(small_demo().report.parent)


@pytest.fixture(scope="module")
def text(records):
    return page_of_owner(records)


def found_at(data, path):
    for key in path.split("."):
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


def test_every_number_is_one_of_the_records(records, text):
    data = {name: value.to_dict() for name, value in vars(records).items() if isinstance(value, Record)}
    numbers = Page(text).numbers
    assert {"comparison", "assessment", "networks", *records.studies} == {path.split(".")[0] for path, *_ in numbers}
    for path, value, shown in numbers:
        found = found_at(data, path)
        assert value == ("" if found is None else repr(found)), path
        assert any(write(found) == shown for write in FORMATS.values()), path


def test_the_page_is_whole_and_its_contents_lead_somewhere(text):
    page = Page(text)
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert all(link.removeprefix("#") in page.ids for link in links)
    assert len(links) == 1 + 9
    assert page.count("caption") == page.count("table")
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
    assert not re.search(r">\s*(nan|inf|None|undefined)\b", text)


def test_the_paper_comes_last(text):
    order = [match[1] for match in re.finditer(r"<h2>([^<]+)</h2>", text)]
    assert order[2:6] == ["Accuracy", "Classes", "Confidence", "During training"]
    assert order.index("Beside the paper") < order.index("The paper's claims, one by one")
    assert order.index("What was run, and how") < order.index("Beside the paper")
    assert "What was run, and how" not in order[order.index("Beside the paper") :]


def test_the_papers_protocol_or_a_request_puts_the_paper_first(records):
    of_paper = replace(records, comparison=replace(records.comparison, paper=PaperProtocol("vision", ())))
    pages = {
        "owner": report_files(records)["report.html"],
        "asked": report_files(records, paper=True)["report.html"],
        "protocol": report_files(of_paper)["report.html"],
    }
    assert pages["asked"] == comparison_page(records)
    first = {name: re.findall(r"<h1>([^<]+)</h1>", page)[0] for name, page in pages.items()}
    assert first["owner"] == "Which student is best, and how good is it?"
    assert first["asked"] == first["protocol"] == "What does a student learn from its teacher, and what does it cost?"


def test_tables_are_written_whichever_page_is(records):
    names = {name for name in report_files(records) if name.endswith(".csv")}
    assert {f"tables/{name}.csv" for name in ("methods", "classes", "confusions", "confidence", "networks")} <= names
    assert names == {name for name in report_files(records, paper=True) if name.endswith(".csv")}


def test_selected_students_are_stamped_wherever_they_are_shown():
    records = records_of({"ce": 1.0, "kd": 1.5}, teacher=2.0, selection="best-validation")
    page = page_of_owner(records)
    assert f'<p class="notice">{SELECTED}</p>' in page
    captions = re.findall(r"<caption>(.*?)</caption>", page, re.S)
    for name in ("Test accuracy:", "Accuracy by class", "The most frequent wrong answers", "Predicted probabilities"):
        (caption,) = (each for each in captions if each.startswith(name))
        assert caption.endswith(SELECTED)
    assert "last epoch" not in page.replace(SELECTED, "").split('id="cells"')[0]


def test_sections_without_data_are_left_out():
    page = page_of_owner(records_of({"ce": 1.0, "kd": 1.5}, kept=False))
    assert Page(page).open == []
    headings = re.findall(r"<h2>([^<]+)</h2>", page)
    assert "Accuracy" in headings
    assert not {"Classes", "Confidence", "Size and speed", "During training"} & set(headings)


def test_hostile_names_are_escaped():
    records = records_of({"ce": 1.0, "kd": 1.5}, name=EVIL, teacher=2.0)
    classes = tuple(replace(each, name=f"{EVIL}{place}") for place, each in enumerate(records.assessment.classes))
    page = page_of_owner(replace(records, assessment=replace(records.assessment, classes=classes)))
    assert EVIL not in page
    assert Page(page).count("script") == 1


def test_the_page_stays_when_logits_and_weights_are_deleted(tmp_path):
    made, copy = small_demo().report.parent, tmp_path / "copy"
    large = shutil.ignore_patterns(
        "*.npy", "*.safetensors", "checkpoints", "snapshots", "cache", "tables", "report.html"
    )
    shutil.copytree(made, copy, ignore=large)
    write_report(copy)
    assert (copy / "report.html").read_bytes() == (made / "report.html").read_bytes()


def test_a_single_run_has_the_same_sections_from_its_test_logits(tmp_path):
    shutil.copytree(small_demo().report.parent / "tpkd" / "seed-42", tmp_path / "run")
    page = write_report(tmp_path / "run")[0].read_text()
    headings = re.findall(r"<h2>([^<]+)</h2>", page)
    assert {"Accuracy", "Classes", "Confidence", "During training", "Size and speed"} <= set(headings)
    assert "How good is this student?" in page
    accuracy = read_records(tmp_path / "run").assessment.methods[0].accuracy
    assert accuracy.sample_low < accuracy.mean < accuracy.sample_high
    assert accuracy.seed_low is None
