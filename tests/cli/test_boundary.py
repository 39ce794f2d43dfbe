"""Where a user's mistake ends and a bug of ours begins: one line and exit 2, or a trace."""

import os

import pytest
import yaml

from cli.training_runs import run
from tpkd.compare import reporting
from training.tiny import plain_config


@pytest.fixture
def tpkd(capsys, monkeypatch):
    return lambda *arguments: run(capsys, monkeypatch, *arguments)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(plain_config(tmp_path, teacher=None, objective="ce", student=STUDENT)))
    return path


STUDENT = {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [4]}}

ONLINE = "teacher={model: 'builtin:mlp', options: {hidden: [4]}, untrained: true}"


def refused(result, *parts):
    code, _, err = result
    assert code == 2
    assert err.startswith("tpkd: ")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    for part in parts:
        assert part in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "s3://bucket/x"),
        ("demo", "--out", "gs://bucket/x"),
        ("demo", "--out=gs://bucket/x"),
        ("figures", "file:///tmp/x"),
        ("train", "https://example.org/run.yaml"),
        ("compare", "s3://bucket/run.yaml"),
        ("study", "blocking", "run.yaml", "--run", "s3://bucket/run"),
        ("study", "blocking", "run.yaml", "--out=s3://bucket/x.json"),
        ("cache", "merge", "s3://bucket/cache"),
        ("cache", "verify", "hdfs://x/cache"),
        ("cache", "import", "s3://x.npy", "--config", "run.yaml"),
        ("cache", "import", "x.npy", "--config", "run.yaml", "--ids=s3://ids.txt"),
        ("diagnose", "s3://s.npy", "--teacher", "t.npy", "--labels", "l.npy"),
        ("diagnose", "s.npy", "--teacher", "s3://t.npy", "--labels", "l.npy"),
        ("diagnose", "s.npy", "--teacher", "t.npy", "--labels", "l.npy", "--html=s3://x.html"),
        ("check-loss", "tpkd:kd_loss", "--json", "s3://x.json"),
        ("report", os.fsdecode(b"\xff")),
    ],
)
def test_paths_that_no_disk_has(tpkd, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    refused(tpkd(*arguments), "expected a path on this machine")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ([f"output={'x' * 300}"], "x" * 300),
        (["output=/dev/null/x"], "/dev/null/x"),
        ([f"teacher.cache={'x' * 300}"], "x" * 300),
        ([f"student.weights={'x' * 300}.safetensors"], "student: "),
        ([f"student.probe_file={'x' * 300}", "student.head=probe"], "x" * 300),
        ([f"data.name=csv:{'x' * 300}"], "x" * 300),
        ([f"data.name=folder:{'x' * 300}"], "x" * 300),
        (["student.options.hidden=[99999999999999999999999]"], "student: hidden: expected 1 to 16777216"),
        (["student.options.input_size=99999999999999"], "student: input_size: expected 1 to 16777216"),
        (["student.options={hidden: [16000000], input_size: 16000000}"], "student: not enough memory"),
        (
            [ONLINE, "objective={name: dhkd, settings: {feature_size: 3}}"],
            "objective.settings.feature_size: expected 4",
        ),
        (
            [ONLINE, "objective={name: dhkd, settings: {feature_size: x}}"],
            "objective.settings.feature_size: expected 4",
        ),
        ([ONLINE, "objective={name: dhkd, settings: {num_classes: 3}}"], "objective.settings.num_classes: expected 10"),
    ],
)
def test_what_a_configuration_caused_names_it(tpkd, config, tmp_path, monkeypatch, overrides, key):
    monkeypatch.chdir(tmp_path)
    refused(tpkd("train", config, *overrides), key)


def test_a_report_of_a_name_that_is_too_long(tpkd):
    refused(tpkd("report", "x" * 300), "x" * 300)


def test_a_bug_of_ours_keeps_its_trace(tpkd, monkeypatch):
    for bug in (ValueError("ours"), KeyError("ours"), FileNotFoundError(2, "No such file", "we forgot to write it")):

        def fail(directory, bug=bug, **options):
            raise bug

        monkeypatch.setattr(reporting, "write_report", fail)
        with pytest.raises(type(bug)):
            tpkd("report", "somewhere")


def test_a_directory_in_brackets_is_no_markup(tpkd, tmp_path, monkeypatch):
    from training.tiny import with_cache

    monkeypatch.chdir(tmp_path)
    place = tmp_path / "[/bold]"
    with_cache(place)
    code, out, err = tpkd("cache", "info", "[/bold]/cache")
    assert code == 0, err
    assert "[/bold]/cache" in out
