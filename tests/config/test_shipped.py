"""Every shipped configuration parses, fits every objective, and says what the paper's appendix says."""

import json
from pathlib import Path

import pytest

from tpkd.config.loading import load_config
from tpkd.config.schema import RunConfig
from tpkd.objectives import create, names
from tpkd.training.schedule import rate_factor

DIRECTORY = Path(__file__).parents[2] / "configs"
FILES = sorted(DIRECTORY.glob("*.yaml"))
VISION, TEXT = DIRECTORY / "paper-vision.yaml", DIRECTORY / "paper-text.yaml"


def test_there_are_the_promised_ones():
    promised = ("digits", "digits-teacher", "cpu-text", "cpu-text-teacher", "cpu-vision", "paper-vision", "paper-text")
    assert {*promised, "paper-text-teacher"} <= {path.stem for path in FILES}


def test_the_schema_beside_them_is_current():
    saved = json.loads((DIRECTORY / "schema.json").read_text())
    assert saved == RunConfig.model_json_schema(), "write it anew: python -m tpkd.config > configs/schema.json"
    bounds = {"minimum": 0, "maximum": 2**32 - 1}  # an editor refuses what a run would
    assert bounds.items() <= saved["properties"]["seed"].items()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_parses_for_every_objective(path):
    assert load_config(path).epochs >= 1
    if "teacher" in path.stem:
        return
    for name in names():
        config = load_config(path, [f"objective={name}"])
        assert config.objective.name == name
        create(name, **config.objective.settings)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_names_no_folder_of_a_machine(path):
    config = load_config(path)
    places = [config.output, config.student.weights, config.student.model, config.initial.cache, config.data.root]
    if config.teacher:
        places += [config.teacher.weights, config.teacher.cache, config.teacher.model]
    assert not [place for place in places if place and (place.startswith("/") or ":/" in place or ".." in place)]


def test_the_vision_protocol_is_the_papers():
    config = load_config(VISION)
    assert config.data.name == "cifar100"
    assert (config.student.model, config.teacher.model) == ("timm:pit_b_224", "timm:volo_d2_224")
    assert (config.student.head, config.student.probe_c) == ("probe", 0.01)
    views = config.views
    assert (views.num_views, views.pad, views.flip, views.size, views.interpolation) == (8, 4, True, 224, "bicubic")
    assert (config.epochs, config.batch_size, config.micro_batch_size, config.precision) == (60, 64, 32, "fp16")
    optimizer = config.optimizer
    assert (optimizer.name, optimizer.momentum, optimizer.learning_rate) == ("sgd", 0.9, 1e-4)
    assert config.schedule.name == "constant"
    assert config.clip_norm is None
    assert load_config(VISION, ["objective=ce"]).snapshots == (20, 40, 60)


@pytest.mark.parametrize("name", names())
def test_vision_weight_decay_is_recorded_for_each_method(name):
    expected = 1e-4 if name in ("kl-dist", "xe-kl") else 1e-3
    assert load_config(VISION, [f"objective={name}"]).optimizer.weight_decay == expected


def test_the_text_protocol_is_the_papers():
    config = load_config(TEXT)
    assert config.data.name == "clinc150"
    assert (config.text.max_length, config.text.padding) == (128, "max_length")
    assert (config.student.head, config.student.options["pooling"]) == ("random", "pooler")
    assert (config.epochs, config.batch_size, config.micro_batch_size) == (4, 64, 32)
    assert (config.precision, config.tf32, config.clip_norm) == ("fp32", False, 1.0)
    optimizer = config.optimizer
    assert (optimizer.name, optimizer.betas, optimizer.eps) == ("adam-weight-decay", (0.9, 0.999), 1e-6)
    assert (optimizer.learning_rate, optimizer.weight_decay) == (3e-4, 0.01)
    iterations = config.epochs * 18_000 // config.batch_size
    assert iterations == 1125
    rates = [optimizer.learning_rate * rate_factor(config.schedule, k, iterations) for k in (0, 56, 111, 112, 1124)]
    expected = [0.0, 3e-4 / 2, 3e-4 * 111 / 112, 3e-4 * (1 - 112 / 1125), 3e-4 / 1125]
    assert rates == pytest.approx(expected, abs=1e-18)
    assert load_config(DIRECTORY / "paper-text-teacher.yaml").epochs == 5


@pytest.mark.parametrize("path", [VISION, TEXT], ids=["vision", "text"])
def test_the_papers_temperatures_and_weights_are_written_out(path):
    settings = {name: load_config(path, [f"objective={name}"]).objective.settings for name in names()}
    assert settings["kd"] == {"temperature": 4, "ce_weight": 1, "kd_weight": 1}
    assert (settings["dkd"]["alpha"], settings["dkd"]["beta"], settings["dkd"]["temperature"]) == (1, 8, 4)
    assert settings["dkd"]["warmup_epochs"] == (2 if path == TEXT else 20)
    assert settings["dhkd"]["temperature"] == 2
    for name in ("kl-dist", "xe-kl", "dp-u", "dp-s", "dto-kd"):
        assert settings[name]["temperature"] == 1
    for name in ("tpkd", "tpkd-no-ce", "safe-full-kl", "tpkd-no-projection", "compensation-only"):
        assert settings[name] == {"beta": 0.5}
    assert settings["dto-kd"].get("layer_features", "none") == ("own-objective" if path == TEXT else "none")


@pytest.mark.parametrize("path", [VISION, TEXT, DIRECTORY / "paper-text-teacher.yaml"], ids=lambda path: path.stem)
def test_what_the_paper_leaves_open_is_marked(path):
    marked = [line.split(":")[0].strip() for line in path.read_text().splitlines() if "not stated in the paper" in line]
    expected = {
        "paper-vision": {
            "seed",
            "interpolation",
            "mean",
            "std",
            "warmup_epochs",
            "precision",
            "tf32",
            "dhkd",
            "weights",
        },
        "paper-text": {"seed", "layers", "kd", "xe-kl", "dhkd", "dto-kd", "model"},
        "paper-text-teacher": {"optimizer", "schedule", "batch_size", "model"},
    }[path.stem]
    assert expected <= set(marked)


@pytest.mark.parametrize(("path", "expected"), [(VISION, {"ce-42"}), (TEXT, set())], ids=["vision", "text"])
def test_only_cells_that_a_study_looks_at_keep_snapshots(path, expected):
    """Three snapshots of PiT-B and its momentum take 2.6 GB."""
    from tpkd.compare.grid import plan_grid

    grid = plan_grid(path)
    assert len(grid.cells) == 3 * len(names())
    assert {cell.name for cell in grid.cells if cell.config.snapshots} == expected
