"""Paths are not YAML: what the program knows about a directory reaches the configuration as it is."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from cli.training_runs import run
from odd_names import ODD_NAMES
from tpkd.compare.grid import plan_grid
from tpkd.compare.reporting import read_records
from tpkd.demo import run as demo
from tpkd.training.directory import check_bound

RUN = {
    "output": "elsewhere",
    "data": {"name": "digits"},
    "limit": 20,
    "evaluation": {"limit": 20},
    "student": {"model": "builtin:mlp", "options": {"hidden": [4]}},
    "objective": "ce",
    "optimizer": {"name": "sgd", "learning_rate": 0.1},
    "epochs": 1,
    "tensorboard": False,
    "device": "cpu",
}


class Stop(Exception):  # noqa: N818
    pass


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run; it does not know where it will be copied."""
    from tpkd.config.loading import resolve_config
    from tpkd.training.loop import train

    directory = tmp_path_factory.mktemp("odd") / "run"
    config = resolve_config(RUN)
    train(config, directory)
    return directory, config


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_report_reads_the_run_of_its_own_directory(finished, tmp_path, name):
    run_directory, config = finished
    shutil.copytree(run_directory, tmp_path / name)
    (cell,) = read_records(tmp_path / name).comparison.cells
    assert (cell.directory, cell.status) == (".", "finished")
    check_bound(tmp_path / name, config)


def test_a_report_never_publishes_the_run_next_door(finished, tmp_path, capsys, monkeypatch):
    for name, accuracy in (("x", 0.1234), ("x #2", 0.9876)):
        shutil.copytree(finished[0], tmp_path / name)
        result = json.loads((tmp_path / name / "result.json").read_text())
        (tmp_path / name / "result.json").write_text(json.dumps(result | {"accuracy": accuracy}))
    code, _, err = run(capsys, monkeypatch, "report", tmp_path / "x #2")
    assert code == 0, err
    assert not (tmp_path / "x" / "report.html").exists()
    page = (tmp_path / "x #2" / "report.html").read_text()
    assert "98.76" in page
    assert "12.34" not in page


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_run_is_kept_where_its_command_said(tmp_path, capsys, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(RUN | {"output": name.replace("{", "{{").replace("}", "}}")}))
    code, _, err = run(capsys, monkeypatch, "train", config)
    assert code == 0, err
    assert (tmp_path / name / "result.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "run.yaml"])


@pytest.mark.parametrize("name", ODD_NAMES)
def test_the_probe_of_a_grid_is_kept_beside_its_cells(tmp_path, name):
    literal = name.replace("{", "{{").replace("}", "}}")
    path = tmp_path / "grid.yaml"
    student = RUN["student"] | {"head": "probe"}
    path.write_text(yaml.safe_dump(RUN | {"output": f"runs/{literal}/{{objective}}-{{seed}}", "student": student}))
    grid = plan_grid(path, methods=["ce"], seeds=[42])
    assert grid.directory == Path("runs", name)
    assert grid.cells[0].directory == Path("runs", name, "ce-42")
    assert grid.cells[0].config.student.probe_file == str(Path("runs", name, "probe.safetensors"))


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_demo_stays_in_its_directory(tmp_path, monkeypatch, name):
    seen = []

    def train(config, on_step):
        seen.append(config.directory)
        return type("Result", (), {"steps": 1})

    def compare(grid, **_):
        teacher = grid.base.teacher
        seen.extend([str(grid.directory), grid.cells[0].config.directory, teacher.weights, teacher.cache])
        raise Stop

    monkeypatch.setattr(demo, "train", train)
    monkeypatch.setattr(demo, "compare", compare)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Stop):
        demo.run_demo(Path(name), processes=1)
    expected = ("teacher", ".", "ce/seed-42", "teacher/student.safetensors", "cache")
    assert seen == [str(Path(name, part)) for part in expected]
