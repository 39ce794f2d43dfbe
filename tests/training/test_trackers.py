"""Services that are told about a run: they change nothing in it, and cannot end it."""

import json
import logging
import random
from importlib.metadata import PackageNotFoundError

import accelerate.tracking
import numpy as np
import pytest
import torch

from tpkd.config.loading import ConfigError
from tpkd.training import trackers as trackers_module
from tpkd.training.loop import train
from tpkd.training.run import start_accelerator
from tpkd.training.trackers import Trackers, check_trackers, chosen_trackers
from training.equality import assert_same_run, metrics_of
from training.tiny import make_config, with_cache


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    directory = tmp_path_factory.mktemp("trackers")
    with_cache(directory)
    return directory


class StandIn(accelerate.tracking.GeneralTracker):
    """A tracker of accelerate whose server the test decides about; it draws from every generator, as a library may."""

    name = "wandb"
    requires_logging_directory = False
    tracker = None

    def __init__(self, project, **arguments):
        super().__init__()
        self.events.append(("made", project, arguments))

    def _tell(self, *event):
        random.random(), np.random.rand(), torch.rand(1)
        self.events.append(event)
        if self.is_down(*event):
            raise ConnectionError("server unreachable\nand a second line")

    def start(self):
        self._tell("start")

    def store_init_configuration(self, values):
        self._tell("settings", values)

    def log(self, values, step, **arguments):
        self._tell("log", step, values)

    def finish(self):
        self._tell("finish")


@pytest.fixture
def stand_in(monkeypatch):
    """In the place of wandb's tracker; `is_down` says when the server is."""

    class Mine(StandIn):
        is_down = staticmethod(lambda *event: False)

    Mine.events = []
    monkeypatch.setitem(accelerate.tracking.LOGGER_TYPE_TO_CLASS, "wandb", Mine)
    for name in ("WANDB_PROJECT", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_NAME", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    return Mine


@pytest.fixture
def missing(monkeypatch):
    """Distributions that are not installed, whatever is."""
    names = set()

    def version(name):
        if name in names:
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(trackers_module, "version", version)
    return names


def stop_at(step):
    def on_step(report):
        if report.step == step:
            raise KeyboardInterrupt

    return on_step


def logged(stand_in):
    return [event[1:] for event in stand_in.events if event[0] == "log"]


def test_a_tracker_hears_what_the_metrics_say_and_changes_nothing(shared, tmp_path, stand_in):
    train(make_config(shared), tmp_path / "plain")
    train(make_config(shared, tensorboard=None, tracking=["wandb"]), tmp_path / "tracked")
    assert_same_run(tmp_path / "plain", tmp_path / "tracked")
    lines = [json.loads(line) for line in (tmp_path / "tracked" / "metrics.jsonl").read_text().splitlines()]
    expected = [
        (
            line["step"],
            {f"{line['kind']}/{name}": value for name, value in line.items() if name not in ("kind", "step")},
        )
        for line in lines
    ]
    assert logged(stand_in) == expected
    assert [event[0] for event in stand_in.events[:3]] == ["made", "start", "settings"]
    assert stand_in.events[-1] == ("finish",)
    (settings,) = (event[1] for event in stand_in.events if event[0] == "settings")
    assert settings["optimizer.learning_rate"] == 0.1
    assert settings["objective.name"] == "tpkd"


def test_a_run_that_continues_continues_for_its_trackers(shared, tmp_path, stand_in):
    config = make_config(shared, tensorboard=None, tracking=["wandb"])
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", on_step=stop_at(6))
    assert stand_in.events[-1] == ("finish",)
    train(config, tmp_path / "run")
    (project, first), (_, second) = (event[1:] for event in stand_in.events if event[0] == "made")
    assert first == second
    assert (project, first["resume"], first["name"], first["dir"]) == ("tpkd", "allow", "run", str(tmp_path / "run"))
    assert json.loads((tmp_path / "run" / "tracking.json").read_text())["ids"] == {"wandb": first["id"]}
    train(config, tmp_path / "other")
    assert stand_in.events[-1] == ("finish",)
    assert [event for event in stand_in.events if event[0] == "made"][-1][2]["id"] != first["id"]


def test_the_variables_of_a_service_win(tmp_path, stand_in, monkeypatch):
    start_accelerator(make_config(tmp_path))
    for name in ("PROJECT", "RUN_ID", "NAME", "DIR"):
        monkeypatch.setenv(f"WANDB_{name}", f"my-{name}")
    assert Trackers(["wandb"], tmp_path, {}).start(0) == []
    assert stand_in.events[0] == ("made", "my-PROJECT", {"resume": "allow"})
    assert json.loads((tmp_path / "tracking.json").read_text())["ids"] == {"wandb": "my-RUN_ID"}


@pytest.mark.parametrize("when", ["start", "settings", "log", "finish"])
def test_a_server_that_is_gone_does_not_end_a_run(shared, tmp_path, stand_in, caplog, when):
    """It is said once, in the log and on the terminal, and the other trackers are told on."""
    train(make_config(shared), tmp_path / "plain")
    stand_in.is_down = staticmethod(lambda kind, *event: kind == when and (kind != "log" or event[0] > 5))
    config = make_config(shared, tensorboard=None, tracking=["wandb", "tensorboard"])
    with caplog.at_level(logging.WARNING):
        train(config, tmp_path / "run")
    assert_same_run(tmp_path / "plain", tmp_path / "run")
    said = "tracking: wandb failed and is left out from here on: ConnectionError: server unreachable"
    lines = (tmp_path / "run" / "run.log").read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines if "tracking" in line] == [said]
    assert [record.getMessage() for record in caplog.records if "tracking" in record.getMessage()] == [said]
    assert [event[0] for event in stand_in.events].count(when) == (1 if when != "log" else len(logged(stand_in)))
    assert stand_in.events[-1][0] == when
    events = (tmp_path / "run" / "tensorboard" / "events.out.tfevents.000001").read_bytes()
    assert b"evaluation/accuracy" in events


def test_an_interrupt_inside_a_tracker_is_one_of_the_run(tmp_path, stand_in):
    start_accelerator(make_config(tmp_path))

    def interrupt(kind, *event):
        if kind == "log":
            raise KeyboardInterrupt

    stand_in.is_down = staticmethod(interrupt)
    trackers = Trackers(["wandb"], tmp_path, {})
    trackers.start(0)
    with pytest.raises(KeyboardInterrupt):
        trackers.log({"train/loss": 1.0}, 1)


def test_damaged_ids_leave_the_tracker_out_by_name(tmp_path, stand_in):
    (tmp_path / "tracking.json").write_text("{")
    (problem,) = Trackers(["wandb"], tmp_path, {}).start(0)
    assert problem.startswith(f"tracking: wandb failed and is left out from here on: {tmp_path / 'tracking.json'}: ")
    assert stand_in.events == []


def test_without_a_choice_tensorboard_is_written_where_it_is_installed(missing):
    assert chosen_trackers(None) == ("tensorboard",)
    assert chosen_trackers(()) == ()
    missing.add("tensorboard")
    assert chosen_trackers(None) == ()
    check_trackers(None)
    assert chosen_trackers(["tensorboard"]) == ("tensorboard",)


@pytest.mark.parametrize(
    ("name", "packages", "install"),
    [
        ("tensorboard", ["tensorboard"], "'tpkd[tensorboard]'"),
        ("wandb", ["wandb"], "wandb"),
        ("mlflow", ["mlflow", "mlflow-skinny"], "mlflow"),
        ("trackio", ["trackio"], "trackio"),
    ],
)
def test_a_missing_library_is_one_line_before_anything_is_computed(shared, tmp_path, missing, name, packages, install):
    check_trackers([name])
    missing.update(packages)
    config = make_config(shared, tensorboard=None, tracking=[name])
    with pytest.raises(ConfigError) as caught:
        train(config, tmp_path / "run")
    assert str(caught.value) == f"tracking: {name} is not installed: pip install {install}"
    assert not (tmp_path / "run").exists()


def test_mlflow_without_a_database_needs_a_server(missing, monkeypatch):
    missing.update(["sqlalchemy", "mlflow"])
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(
        ConfigError, match="mlflow needs sqlalchemy to keep a run in its directory: pip install mlflow, or"
    ):
        check_trackers(["mlflow"])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    check_trackers(["mlflow"])


def history(path):
    """What an offline run of wandb holds: (step, values) in the order of its lines, and its id."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    store, lines, run_id = DataStore(), {}, None
    store.open_for_scan(str(path))
    while (data := store.scan_data()) is not None:
        record = Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "run":
            run_id = record.run.run_id
        if record.WhichOneof("record_type") == "history":
            values = {
                "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
            }
            step = values.pop("_step")
            lines.setdefault(step, {}).update({key: value for key, value in values.items() if key[0] != "_"})
    return lines, run_id


def test_wandb_keeps_a_run_in_its_directory(shared, tmp_path, monkeypatch):
    """The library itself, offline: both starts have one id, and hold what the metrics say."""
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)
    config = make_config(shared, tensorboard=None, tracking=["wandb"])
    train(make_config(shared), tmp_path / "plain")
    try:
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "run", on_step=stop_at(6))
        train(config, tmp_path / "run")
    finally:
        wandb.teardown()
    assert_same_run(tmp_path / "plain", tmp_path / "run")
    assert "tracking" not in (tmp_path / "run" / "run.log").read_text()
    assert not (tmp_path / "wandb").exists()
    first, second = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    (before, first_id), (after, second_id) = history(first), history(second)
    assert first_id == second_id == json.loads((tmp_path / "run" / "tracking.json").read_text())["ids"]["wandb"]
    expected = {}
    for line in metrics_of(tmp_path / "run"):
        kind, step = line.pop("kind"), line.pop("step")
        expected.setdefault(step, {}).update({f"{kind}/{name}": value for name, value in line.items()})
    found = {
        step: {name: value for name, value in values.items() if not name.endswith("/seconds")}
        for step, values in {**before, **after}.items()
    }
    assert found == expected
    assert min(after) > 4  # the checkpoint from which it continued
