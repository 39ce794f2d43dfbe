"""A comparison with variants of objectives: its rows, its records and its page."""

import json
from pathlib import Path

import pytest

from demo.small_demo import inline_jobs
from tpkd.compare import run
from tpkd.compare.grid import plan_grid
from tpkd.compare.record import ComparisonRecord
from tpkd.compare.reporting import catalogue, read_records, write_report
from tpkd.compare.run import compare, open_grid
from tpkd.config.loading import load_config
from tpkd.demo.run import CONFIGS
from tpkd.errors import InputError
from tpkd.training.directory import read_result

VARIANTS = {
    "tpkd-t4": {"objective": "tpkd", "settings": {"temperature": 4}},
    "ce-slow": {"objective": "ce", "overrides": {"optimizer.learning_rate": 0.001}},
}
CONFIG = {
    "output": "grid/{objective}-{seed}",
    "data": {"name": "digits"},
    "limit": 64,
    "evaluation": {"limit": 50},
    "student": {"model": "builtin:mlp", "options": {"hidden": [8]}},
    "teacher": {"model": "builtin:mlp", "options": {"hidden": [16]}, "untrained": True},
    "objective": "ce",
    "optimizer": {"name": "sgd", "learning_rate": 0.1},
    "epochs": 1,
    "tracking": [],
    "variants": VARIANTS,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The directory of a small grid with variants, run in two calls; variants have one seed more."""
    place = tmp_path_factory.mktemp("variants")
    (place / "grid.yaml").write_text(json.dumps(CONFIG))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(run, "run_jobs", inline_jobs)
        for methods, seeds in ((["ce", "tpkd"], [1, 2]), (["ce-slow", "tpkd-t4"], [1, 2, 3])):
            compare(open_grid("grid.yaml", [], methods=methods, seeds=seeds))
    return place


@pytest.fixture
def record(made):
    return ComparisonRecord.from_json((made / "grid/comparison.json").read_text())


def test_variants_are_rows_after_their_objectives(record):
    assert record.objectives == ("ce", "ce-slow", "tpkd", "tpkd-t4")
    assert {method.objective: method.seeds for method in record.methods} == {
        "ce": (1, 2),
        "ce-slow": (1, 2, 3),
        "tpkd": (1, 2),
        "tpkd-t4": (1, 2, 3),
    }
    assert {variant.name: variant.title for variant in record.variants} == {
        "ce-slow": f"{catalogue().title('ce')} (rate = 0.001)",
        "tpkd-t4": "TPKD (T = 4)",
    }
    settings = {method.objective: method for method in record.settings}
    assert settings["tpkd-t4"].settings["temperature"] == 4
    assert settings["tpkd"].settings["temperature"] == 1
    assert settings["ce-slow"].overrides == {"optimizer.learning_rate": 0.001}


def test_a_run_says_what_it_is_a_variant_of(made):
    directory = made / "grid/tpkd-t4-3"
    assert read_result(directory).objective == "tpkd"
    saved = load_config(directory / "config.yaml")
    assert (saved.objective.name, saved.objective.variant, saved.variants) == ("tpkd", "tpkd-t4", {})
    assert saved.directory == "grid/tpkd-t4-3"
    logits = {
        name: (made / f"grid/students/{name}-1.npy").read_bytes() for name in ("ce", "ce-slow", "tpkd", "tpkd-t4")
    }
    assert len(set(logits.values())) == 4


def test_finished_variants_never_run_again(made, monkeypatch):
    monkeypatch.chdir(made)
    monkeypatch.setattr(run, "run_jobs", inline_jobs)
    before = {path: path.stat().st_mtime_ns for path in Path("grid").glob("*/result.json")}
    compare(open_grid("grid.yaml", [], methods=["tpkd-t4"], seeds=[1, 2, 3]))
    assert {path: path.stat().st_mtime_ns for path in Path("grid").glob("*/result.json")} == before


def test_the_page_has_their_titles(made):
    write_report(made / "grid")
    page = (made / "grid/report.html").read_text()
    assert "TPKD (T = 4)" in page
    assert read_records(made / "grid").methods.title("tpkd-t4") == "TPKD (T = 4)"
    # A run by itself is shown too; its configuration has no titles of variants.
    assert read_records(made / "grid/tpkd-t4-1").comparison.objectives == ("tpkd-t4",)


@pytest.mark.parametrize(
    ("variants", "methods", "message"),
    [
        ("{kd: {objective: tpkd, settings: {beta: 1}}}", None, "variants.kd: expected a name of its own"),
        (
            "{a: {objective: tpdk, settings: {beta: 1}}}",
            None,
            "variants.a.objective: unknown objective 'tpdk', expected",
        ),
        ("{kd-t1: {objective: kd, settings: {temperature: 1}}}", ["kd-t2"], "did you mean kd-t1"),
        ("{a: {objective: kd, overrides: {epochs: 3}}}", None, "variants.a: epochs: expected the same for all"),
    ],
)
def test_variants_that_cannot_be_compared_are_refused(variants, methods, message):
    with pytest.raises(InputError) as refused:
        plan_grid(CONFIGS / "demo.yaml", [f"variants={variants}"], methods=methods)
    assert message in str(refused.value)


def test_all_methods_include_the_variants():
    variants = "variants={kd-t1: {objective: kd, settings: {temperature: 1}}}"
    assert "kd-t1" in plan_grid(CONFIGS / "demo.yaml", [variants]).objectives
