"""The demo in small: everything learns, every statement of the theory holds, and a second run is the same."""

from pathlib import Path

import pytest
import torch

from demo.small_demo import run_small_demo, small_demo
from tpkd.compare.reporting import read_records
from tpkd.demo.run import _one_spelling, run_demo
from tpkd.errors import InputError


@pytest.fixture(scope="module")
def made():
    return small_demo()


@pytest.fixture(scope="module")
def records(made):
    return read_records(made.report.parent)


def test_teacher_and_every_objective_improve_on_their_start(made):
    record = made.comparison
    assert made.teacher.accuracy > 0.7
    for method in record.methods:
        # Without labels in its gradient, TPKD learns them slowly; at chance nothing may stay.
        least = 1.5 * record.start.accuracy if method.objective == "tpkd-no-ce" else 0.5
        assert min(method.accuracies) > least, method.objective


def test_every_statement_of_the_theory_holds_in_the_studies(made, records):
    assert made.failed_studies == {}
    assert made.violations == 0
    assert set(records.studies) == {"blocking", "exact_head", "certificates", "continuation"}
    for name in ("blocking", "exact_head", "certificates"):
        assert any(check.theorem and check.cases for check in records.studies[name].checks)


def test_exact_head_steps_keep_every_margin_with_projection_and_lose_one_without(records):
    for state in records.exact_head.states:
        assert state.lost_examples["tpkd"] == 0
        assert state.lost_examples["tpkd-no-projection"] == state.examples


def test_report_diagnosis_figures_and_tables_are_there(made):
    directory = made.report.parent
    assert made.diagnosis == directory / "diagnosis.html"
    assert made.audit == directory / "audit" / "index.html"
    assert (directory / "audit" / "data" / "inputs" / "0.js").stat().st_size > 0
    for name in ("report.html", "figures/figure-1-feasibility.svg", "tables/application.md", "tables/states.tex"):
        assert (directory / name).stat().st_size > 0


def tables(directory):
    # Wall-clock differs, and the protocol names the directory.
    found = (path for path in (directory / "tables").iterdir() if path.stem not in ("cost", "networks", "protocol"))
    return {path.name: path.read_text() for path in found}


def test_two_runs_give_identical_tables(made, tmp_path):
    again = run_small_demo(tmp_path / "again")
    first, second = (tables(result.report.parent) for result in (made, again))
    assert len(first) > 30
    assert second == first


def test_a_demo_that_is_done_computes_nothing_again(made, monkeypatch):
    def refuse(*arguments, **rest):
        raise AssertionError("something ran again")

    directory = made.report.parent
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != ".lock"}
    monkeypatch.setattr("tpkd.training.loop.take_step", refuse)
    monkeypatch.setattr("tpkd.demo.run.run_study", refuse)
    assert run_small_demo(directory).comparison == made.comparison
    after = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != ".lock"}
    assert after == before


def test_threads_of_the_caller_are_put_back(tmp_path, monkeypatch):
    seen, before = [], torch.get_num_threads()

    def look(*arguments):
        seen.append(torch.get_num_threads())
        raise InputError("seen enough")

    monkeypatch.setattr("tpkd.demo.run._train_teacher", look)
    torch.set_num_threads(2)
    try:
        with pytest.raises(InputError, match="seen enough"):
            run_demo(tmp_path / "demo", processes=1)
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)


def test_a_directory_is_the_same_however_it_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert {_one_spelling(Path(name)) for name in ("demo", "./demo", "x/../demo", str(tmp_path / "demo"))} == {
        Path("demo")
    }
    assert _one_spelling(Path("../demo")) == tmp_path.resolve().parent / "demo"


def test_a_foreign_directory_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="found other files"):
        run_demo(tmp_path, processes=1)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
