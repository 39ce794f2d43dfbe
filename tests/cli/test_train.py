import json
import os
import signal
import subprocess
import sys

import pytest
import yaml

from cli.training_runs import run
from tpkd.config.loading import config_yaml, load_config
from tpkd.config.section import SEEDS
from tpkd.training.step import take_step
from training.tiny import plain_config, with_cache


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cli-train")
    with_cache(directory)
    return directory


@pytest.fixture
def config(shared, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(plain_config(shared) | {"output": str(tmp_path / "{objective}-{seed}")}))
    return path


@pytest.fixture
def tpkd(capsys, monkeypatch):
    return lambda *arguments: run(capsys, monkeypatch, *arguments)


def test_a_run_prints_its_result_and_where_it_is(tpkd, config, tmp_path):
    code, out, err = tpkd("train", config, "objective=kd", "epochs=2", "seed=7")
    assert code == 0
    result = json.loads((tmp_path / "kd-7" / "result.json").read_text())
    assert f"kd, seed 7: {result['accuracy']:.2%} of 100 test samples after epoch 2" in out
    assert f"run: {tmp_path / 'kd-7'}" in out
    assert "step 10/10, epoch 2, loss" in err


def test_a_run_with_a_validation_part_says_how_its_student_was_chosen(tpkd, config, tmp_path):
    validated = ["objective=ce", "teacher=null", "student.layers=[]", "data.validation=0.2"]
    code, out, _ = tpkd("train", config, *validated, "seed=1")
    assert code == 0
    assert " of 100 test samples and " in out
    assert " of 100 validation samples after epoch 3" in out
    code, out, _ = tpkd("train", config, *validated, "seed=2", "selection=best-validation")
    result = json.loads((tmp_path / "ce-2" / "result.json").read_text())
    assert f" validation samples, the student of epoch {result['selected_epoch']} of 3, selected by validation" in out
    code, out, _ = tpkd("train", config, *validated, "seed=3", "evaluation.test=false")
    assert "test samples" not in out
    assert code == 0


def test_the_same_command_again_is_done_at_once(tpkd, config):
    first = tpkd("train", config, "epochs=1")
    code, out, err = tpkd("train", config, "epochs=1", "--resume")
    assert (code, out, err) == (0, first[1], "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["epochs=none-of-it"], "{config}: epochs: Input should be a valid integer"),
        (["epoch=3"], "{config}: epoch: unknown key, expected one of batch_size"),
        (["objective=tpdk"], "{config}: objective: name: expected one of ce, kd"),
        (["objective.settings.gamma=3"], "{config}: objective: settings: objective 'tpkd': expected some of beta"),
        (["data.name=mnist"], "{config}: data: data set: expected one of digits"),
        (["student.model=builtin:mlpp"], "{config}: student: model 'builtin:mlpp': unknown, expected builtin:mlp"),
        (
            ["teacher.cache=missing-cache"],
            "{config}: teacher.cache: missing-cache: expected a cache, found no manifest.json; `tpkd",
        ),
        (["views.seed=3"], "{config}: teacher.cache: "),
        (["student.options.input_size=10"], "{config}: student.model: builtin:mlp does not fit the inputs of digits"),
        (["--resume", "seed=99"], "tpkd-99: expected a checkpoint to continue from, found none"),
        (["epochs"], "override 'epochs': expected key=value"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(tpkd, config, arguments, message):
    code, out, err = tpkd("train", config, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message.format(config=config) in err


def test_a_missing_file_is_one_line_and_exit_2(tpkd, tmp_path):
    code, _, err = tpkd("train", tmp_path / "no.yaml")
    assert code == 2
    assert err == f"tpkd: {tmp_path / 'no.yaml'}: cannot be read: No such file or directory\n"


def test_a_loss_that_is_not_finite_is_exit_1_and_names_samples(tpkd, config):
    code, out, err = tpkd("train", config, "objective=ce", "optimizer.learning_rate=1e18")
    assert (code, out) == (1, "")
    assert "is not finite" in err
    assert "samples" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("step", "outlook"),
    [(3, "there is no checkpoint yet, the same command starts anew"), (6, "the same command continues from step 4")],
)
def test_ctrl_c_is_one_line_with_the_command_that_goes_on(tpkd, config, monkeypatch, step, outlook):
    def interrupted(run, number, samples, **options):
        if number == step:
            signal.raise_signal(signal.SIGINT)
        return take_step(run, number, samples, **options)

    with monkeypatch.context() as patch:
        patch.setattr("tpkd.training.loop.take_step", interrupted)
        code, out, err = tpkd("train", config, "student.options={hidden: [16]}")
    assert (code, out) == (130, "")
    command = f"tpkd train {config} 'student.options={{hidden: [16]}}'"
    assert err.splitlines()[-1] == f"tpkd: interrupted; {outlook}: {command}"
    assert "Traceback" not in err
    assert tpkd("train", config, "student.options={hidden: [16]}")[0] == 0


def test_sigterm_is_one_line_with_the_command_that_goes_on(tpkd, config, tmp_path, monkeypatch):
    def terminated(run, number, samples, **options):
        if number == 6:
            assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
            signal.raise_signal(signal.SIGTERM)
        return take_step(run, number, samples, **options)

    with monkeypatch.context() as patch:
        patch.setattr("tpkd.training.loop.take_step", terminated)
        code, out, err = tpkd("train", config)
    assert (code, out) == (143, "")
    assert err.splitlines()[-1] == f"tpkd: terminated; the same command continues from step 6: tpkd train {config}"
    assert "Traceback" not in err
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert tpkd("train", config, "--resume")[0] == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_under_the_log_is_one_line_and_exit_2(tpkd, config, tmp_path):
    (tmp_path / "tpkd-42").mkdir()
    (tmp_path / "tpkd-42" / "run.log").symlink_to("/dev/full")
    (tmp_path / "tpkd-42" / "config.yaml").write_text(config_yaml(load_config(config)))
    code, out, err = tpkd("train", config)
    assert (code, out) == (2, "")
    assert err == f"tpkd: {tmp_path / 'tpkd-42' / 'run.log'}: cannot be written: No space left on device\n"


def test_ctrl_c_under_a_launcher_is_said_once(tpkd, config, monkeypatch):
    def interrupted(*arguments, **options):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("tpkd.training.loop.train", interrupted)
    for rank, said in (
        ("0", "tpkd: interrupted; there is no checkpoint yet, the same command starts anew\n"),
        ("1", ""),
    ):
        monkeypatch.setenv("RANK", rank)
        assert tpkd("train", config) == (130, "", said)


def test_a_run_is_reproducible_from_its_directory(tpkd, config, tmp_path):
    tpkd("train", config, "objective=dkd", "epochs=2")
    first = json.loads((tmp_path / "dkd-42" / "result.json").read_text())
    tpkd("train", tmp_path / "dkd-42" / "config.yaml", f"output={tmp_path / 'again'}")
    second = json.loads((tmp_path / "again" / "result.json").read_text())
    assert first["student_fingerprint"] == second["student_fingerprint"]


def test_a_launcher_gives_every_process_its_share(config, tmp_path):
    """As on many machines; the first process alone speaks. With the last seed, whose next is the first."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*launcher, "-m", "tpkd", "train", str(config), "epochs=1", "device=auto", f"seed={SEEDS - 1}"],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("test samples after epoch 1") == 1
    result = json.loads((tmp_path / f"tpkd-{SEEDS - 1}" / "result.json").read_text())
    assert result["processes"] == 2
