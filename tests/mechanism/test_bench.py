"""Snapshots: whole, the same after an interruption, and refused where they belong to something else."""

import shutil
from pathlib import Path

import pytest
import torch

from mechanism.ce_run import train_runs
from tpkd.config.loading import ConfigError, resolve_config
from tpkd.errors import InputError
from tpkd.mechanism.bench import open_bench
from tpkd.mechanism.blocking import study_blocking
from tpkd.mechanism.certificates import study_certificates
from tpkd.mechanism.continuation import study_continuation
from tpkd.mechanism.exact_head import study_exact_head
from tpkd.training.loop import snapshot_states, train


@pytest.fixture(scope="module")
def other_run(tmp_path_factory):
    return train_runs(tmp_path_factory.mktemp("other"), hidden=16, epochs=2, snapshots=(2,))


class InterruptedRunError(Exception):
    pass


def test_a_run_that_stopped_after_a_snapshot_keeps_one_that_is_the_same(ce_run, tmp_path):
    def stop(report):
        if report.step == 17:  # two steps after the snapshot of epoch 2, which ends with the 1000th sample
            raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        train(ce_run.config, tmp_path / "run", on_step=stop)
    stopped = snapshot_states(tmp_path / "run", 2)
    kept = {path.name: path.read_bytes() for path in (stopped.directory / "step-000016").iterdir()}
    (stopped.directory / ".step-000016.partial").mkdir()
    train(ce_run.config, tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (stopped.directory / "step-000016").iterdir()} == kept
    for epoch in (2, 10):
        first, second = (snapshot_states(directory, epoch) for directory in (ce_run.directory, tmp_path / "run"))
        assert [path.name for path in second.directory.iterdir()] == [f"step-{second.steps()[0]:06d}"]
        one, other = first.load(), second.load()
        assert one.step == other.step
        assert one.groups.keys() == other.groups.keys() == {"model", "optimizer", "objective", "random"}
        for group, tensors in one.groups.items():
            assert tensors.keys() == other.groups[group].keys()
            assert all(torch.equal(value, other.groups[group][name]) for name, value in tensors.items())


def test_a_run_of_another_configuration_is_refused_by_its_key(ce_run):
    config = ce_run.changed(**{"student.options.hidden": "[81]"})
    with pytest.raises(InputError, match=r"another configuration: student\.options\.hidden: expected \[80\]"):
        study_blocking(config)


def test_a_study_writes_nothing_into_a_run_that_it_refuses(ce_run, tmp_path):
    kept = ce_run.config.directory
    (tmp_path / "config.yaml").write_bytes((Path(kept) / "config.yaml").read_bytes())
    before = (tmp_path / "config.yaml").read_bytes()
    with pytest.raises(InputError, match="another configuration: seed"):
        study_blocking(ce_run.changed(seed="43"), tmp_path)
    assert (tmp_path / "config.yaml").read_bytes() == before


def test_another_section_study_is_the_same_run(ce_run):
    assert open_bench(ce_run.studied("seed=9", "blocking.samples=3")).run.config.study.seed == 9


def test_the_snapshot_of_another_model_is_refused(ce_run, other_run, tmp_path):
    directory = ce_run.copy(tmp_path / "run", ce_run.config)
    shutil.rmtree(directory / "snapshots" / "epoch-002")
    shutil.copytree(other_run.directory / "snapshots" / "epoch-002", directory / "snapshots" / "epoch-002")
    with pytest.raises(InputError, match="does not fit this run"):
        study_blocking(ce_run.studied("blocking.states=[2]"), directory)


def test_the_snapshot_of_other_data_is_refused(ce_run, tmp_path):
    # Without a cache, which would be refused first because it holds other samples.
    config = ce_run.changed(limit=300, **{"teacher.cache": "null"})
    directory = ce_run.copy(tmp_path / "run", config)
    with pytest.raises(InputError, match="checkpoint of step 79: data: expected"):
        study_continuation(config, directory)


def test_a_damaged_snapshot_is_refused_by_its_file(ce_run, tmp_path):
    directory = ce_run.copy(tmp_path / "run", ce_run.config)
    (path,) = (directory / "snapshots" / "epoch-010").glob("step-*/optimizer.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"optimizer\.safetensors: expected SHA-256"):
        study_continuation(ce_run.config, directory)


def test_what_is_missing_is_named(ce_run, tmp_path):
    with pytest.raises(
        InputError, match=r"study\.blocking\.states: expected epochs of snapshots \(2, 6, 10\), found 7"
    ):
        study_blocking(ce_run.studied("blocking.states=[2, 7]"))
    with pytest.raises(InputError, match=f"{tmp_path}: expected a run of 'ce' with snapshots, found none"):
        study_blocking(ce_run.config, tmp_path)
    directory = ce_run.copy(tmp_path / "run", ce_run.config)
    shutil.rmtree(directory / "snapshots" / "epoch-006")
    (directory / "snapshots" / "epoch-006.safetensors").unlink()
    with pytest.raises(InputError, match="epoch-006: expected the state after epoch 6, found none"):
        study_blocking(ce_run.studied("blocking.states=[6]"), directory)
    config = ce_run.changed(teacher="null")
    with pytest.raises(InputError, match="teacher: missing"):
        study_blocking(config, ce_run.copy(tmp_path / "alone", config))
    config = ce_run.changed(snapshots="[]")
    with pytest.raises(InputError, match="snapshots: missing"):
        study_blocking(config)


def test_several_teachers_are_refused_before_anything_is_opened(ce_run):
    config = ce_run.changed(teacher="null", teachers="[{cache: a}, {cache: b}]")
    with pytest.raises(InputError, match="teachers: expected one teacher, found 2: a study follows steps"):
        study_blocking(config)


def test_an_unknown_name_comes_before_the_run_it_differs_from(ce_run):
    student = ce_run.config.student.model_copy(update={"model": "builtin:mpl"})
    with pytest.raises(InputError, match=r"student: model 'builtin:mpl': unknown.*did you mean builtin:mlp"):
        study_blocking(ce_run.config.model_copy(update={"student": student}))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("study.blocking.sample=3", "study.blocking.sample: unknown key.*did you mean samples"),
        ("study.exact_head.step_size=0.9", r"study\.exact_head\.step_size: .*0\.8"),
        ("study.blocking.splits=[train, train]", r"blocking\.splits"),
        ("study.continuation.points=[-1]", r"study\.continuation\.points"),
    ],
)
def test_wrong_sizes_are_refused_by_their_key(ce_run, override, message):
    with pytest.raises(InputError, match=message):
        resolve_config(ce_run.config.model_dump(mode="json"), [override])


@pytest.mark.parametrize("study", ["blocking", "exact_head", "certificates"])
def test_a_state_is_looked_at_once(ce_run, study):
    with pytest.raises(InputError, match=rf"study\.{study}\.states: expected every epoch once, found 6 twice"):
        ce_run.studied(f"{study}.states=[2, 6, 6]")


@pytest.mark.parametrize("study", [study_continuation, study_certificates])
def test_a_student_that_a_study_breaks_is_said_in_one_line(ce_run, study, monkeypatch):
    config = ce_run.studied("certificates.batches=1", "continuation.iterations=3")
    # Past the bound of the configuration, so that a small network breaks at its first steps.
    monkeypatch.setattr("tpkd.mechanism.bench.Bench.learning_rate", 1e30)
    with pytest.raises(InputError, match=r"student: expected finite logits, found .*learning_rate"):
        study(config).to_json()


def test_a_run_without_snapshots_is_refused_by_every_study(ce_run):
    for study in (study_continuation, study_exact_head, study_certificates):
        with pytest.raises(ConfigError, match="snapshots: missing"):
            study(ce_run.changed(snapshots="[]"))


def test_a_run_of_a_seed_that_keeps_no_snapshots_is_refused_with_those_that_do(ce_run):
    config = ce_run.changed(snapshot_seeds="[7, 8]")
    assert config.snapshots == ()
    with pytest.raises(ConfigError, match="snapshot_seeds: expected the seed of the run, 42, found 7, 8"):
        study_blocking(config)
    assert ce_run.changed(snapshot_seeds="[7, 42]").snapshots == (2, 6, 10)
