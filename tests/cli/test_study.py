"""The verbs of `tpkd study`: a table and a record out, exit 1 for what the theory excludes, one line for mistakes."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from mechanism.ce_run import train_runs
from tpkd.cli.study import study
from tpkd.config.loading import config_yaml
from tpkd.errors import InputError
from tpkd.mechanism import studies as mechanism
from tpkd.mechanism.record import BlockingRecord, CertificatesRecord, ContinuationRecord, ExactHeadRecord

RECORDS = {
    "blocking": BlockingRecord,
    "exact-head": ExactHeadRecord,
    "certificates": CertificatesRecord,
    "continuation": ContinuationRecord,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_runs(tmp_path_factory.mktemp("study"), epochs=4, snapshots=(1, 4))


@pytest.fixture
def config_file(trained, tmp_path):
    """As a user has it: the configuration of the method he cares for, not of the CE run."""
    path = tmp_path / "run.yaml"
    path.write_text(config_yaml(trained.config).replace("name: ce\n", "name: tpkd\n"))
    return path


@pytest.mark.parametrize("name", RECORDS)
def test_a_study_of_the_ce_run_prints_a_table_and_writes_a_record(trained, config_file, name):
    result = CliRunner().invoke(study, [name, str(config_file)])
    assert result.exit_code == 0, result.output
    path = trained.directory / "studies" / f"{name}.json"
    record = RECORDS[name].from_json(path.read_text())
    assert record.source.objective == "ce"
    assert f"written: {path}" in result.output
    assert "CE4" in result.output
    assert "…" not in result.output
    for scaled in record.scalings:
        assert f"{scaled.used:,} instead of {scaled.asked:,}" in result.output


def test_overrides_another_run_directory_and_another_file(trained, config_file, tmp_path):
    directory = trained.copy(tmp_path / "moved", trained.config)
    out = tmp_path / "here" / "record.json"
    arguments = ["blocking", str(config_file), "study.blocking.samples=7", "--run", str(directory), "--out", str(out)]
    result = CliRunner().invoke(study, arguments)
    assert result.exit_code == 0, result.output
    assert len(BlockingRecord.from_json(out.read_text()).splits[0].sample_ids) == 7
    assert not (directory / "studies").exists()


def test_a_violation_of_the_theory_is_exit_1(config_file, monkeypatch):
    def broken(config, directory, **options):
        record = mechanism.study_blocking(config, directory)
        return replace(record, checks=(replace(record.checks[0], violations=3, worst=-0.5), *record.checks[1:]))

    monkeypatch.setitem(mechanism.STUDIES, "blocking", broken)
    result = CliRunner().invoke(study, ["blocking", str(config_file)])
    assert result.exit_code == 1
    assert "VIOLATION: D_inf(q || r) >= KL(q || r): 3 of" in result.output


def test_an_observation_that_fails_is_said_and_is_no_error(config_file, monkeypatch):
    def unlucky(config, directory, **options):
        record = mechanism.study_blocking(config, directory)
        return replace(record, checks=(*record.checks[:-1], replace(record.checks[-1], violations=2, worst=0.0)))

    monkeypatch.setitem(mechanism.STUDIES, "blocking", unlucky)
    result = CliRunner().invoke(study, ["blocking", str(config_file)])
    assert result.exit_code == 0
    assert "not always: KL(q || r) > 0 where blocked: 2 of" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["study.blocking.states=[3]"], r"run\.yaml: study\.blocking\.states: expected epochs of snapshots"),
        (["seed=7"], "another configuration: seed: expected 42, found 7"),
        (["study.blocking.sample=3"], "did you mean samples"),
        (["--run", "/no/such/run"], "/no/such/run: expected a run of 'ce'"),
    ],
)
def test_mistakes_are_one_line(config_file, arguments, message):
    result = CliRunner().invoke(study, ["blocking", str(config_file), *arguments])
    assert isinstance(result.exception, InputError)
    with pytest.raises(InputError, match=message):
        raise result.exception
    assert "\n" not in str(result.exception)
