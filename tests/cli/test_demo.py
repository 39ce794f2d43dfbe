"""`tpkd demo`: what it refuses, and how it exits when something failed."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.training_runs import run
from compare.cases import cell, comparison
from tpkd.demo import run as demo


def test_demo_leaves_a_foreign_directory_alone(capsys, monkeypatch, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    code, _, err = run(capsys, monkeypatch, "demo", "--out", tmp_path)
    assert code == 2
    assert err.count("\n") == 1
    assert str(tmp_path) in err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("problem", "studies", "violations", "said"),
    [
        (None, {}, 0, None),
        ("out of memory", {}, 0, "ce-42 failed: out of memory"),
        (None, {"blocking": "no snapshot"}, 0, "study blocking failed: no snapshot"),
        (None, {}, 3, "the studies saw 3 cases that the theory excludes"),
    ],
)
def test_a_demo_with_a_failed_part_shows_the_rest_and_exits_with_1(
    capsys, monkeypatch, tmp_path, problem, studies, violations, said
):
    result = SimpleNamespace(
        comparison=comparison([cell("ce", 42, 0.5, problem=problem)]),
        failed_studies=studies,
        violations=violations,
        teacher=SimpleNamespace(accuracy=0.75, test_samples=719),
        diagnosis=None,
        audit=None,
        report=Path("report.html"),
    )
    monkeypatch.setattr(demo, "run_demo", lambda out, *, processes, watcher: result)
    code, out, err = run(capsys, monkeypatch, "demo", "--out", tmp_path)
    assert code == (1 if said else 0)
    assert said is None or said in out + err
    assert "teacher: 75.00 % of 719 held-out digits" in out + err
    assert "report: report.html" in out + err
