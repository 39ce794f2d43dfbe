"""What a sweep consists of: parsed, planned, and refused where it makes no sense."""

import itertools

import pytest

from compare.sweeps import BETA, RATE, TEMPERATURE, write_config
from tpkd.compare.sweep import Trial, parse_sweeps, plan_sweep, variant_name
from tpkd.errors import InputError
from tpkd.objectives import describe


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path)


def test_values_are_yaml():
    assert parse_sweeps(["beta=0.5, 1", "precision=fp32,bf16", "clip_norm=null,1.0"]) == {
        "beta": [0.5, 1],
        "precision": ["fp32", "bf16"],
        "clip_norm": [None, 1.0],
    }


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["beta"], r"--sweep beta: expected NAME=VALUE,VALUE, such as beta=0.5,1"),
        (["=1"], r"--sweep =1: expected NAME=VALUE"),
        (["beta="], r"--sweep beta=: expected NAME=VALUE"),
        (["beta=1,1.0"], r"--sweep beta=1,1.0: expected every value once, found 1.0 twice"),
        (["beta=1", "beta=2"], r"--sweep beta=2: expected every name once, found beta again"),
        (["beta=1", "objective.settings.beta=2"], "expected every name once, found objective.settings.beta again"),
        (["rate=1", "optimizer.learning_rate=2"], "expected every name once, found optimizer.learning_rate again"),
        (["beta=[1"], r"--sweep beta=\[1: line 1: "),
    ],
)
def test_what_is_not_a_sweep_is_named(texts, problem):
    with pytest.raises(InputError, match=problem):
        parse_sweeps(texts)


def test_every_combination_of_the_settings_that_a_method_has(config):
    sweeps = ["beta=0.5,1", "temperature=1,4", "rate=0.1,0.3"]
    sweep = plan_sweep(config, sweeps=sweeps, methods=["ce", "kd", "tpkd"], seeds=[1, 2])
    assert sweep.keys == (BETA, TEMPERATURE, RATE)
    rates, temperatures, betas = (0.1, 0.3), (1, 4), (0.5, 1)
    expected = [Trial("ce", {RATE: rate}) for rate in rates]
    expected += [Trial("kd", {TEMPERATURE: t, RATE: rate}) for t in temperatures for rate in rates]
    expected += [
        Trial("tpkd", {BETA: beta, TEMPERATURE: t, RATE: rate})
        for beta, t, rate in itertools.product(betas, temperatures, rates)
    ]
    assert list(sweep.trials) == expected
    assert len(sweep.grid.cells) == 2 * 14
    cell = sweep.grid.cells[-1]
    assert (cell.objective, cell.seed, cell.config.seed) == ("tpkd", 2, 2)
    assert cell.config.objective.settings == {"beta": 1, "temperature": 4}
    assert cell.config.optimizer.learning_rate == 0.3
    assert cell.name == "tpkd-beta=1,rate=0.3,temperature=4-2"
    assert cell.directory == config.parent / "runs/sweep/tpkd/beta=1,rate=0.3,temperature=4/seed-2"
    assert len({each.directory for each in sweep.grid.cells}) == len({each.name for each in sweep.grid.cells}) == 28
    assert all(not each.config.evaluation.test and not each.config.snapshots for each in sweep.grid.cells)


def test_finished_cells_drop_their_checkpoints_as_in_a_grid(config):
    for overrides, expected in (((), {False}), (["finished.checkpoints=true"], {True})):
        sweep = plan_sweep(config, overrides, sweeps=["beta=0.5,1"], methods=["tpkd"], seeds=[1])
        assert {cell.config.finished.checkpoints for cell in sweep.grid.cells} == expected


def test_a_method_without_the_setting_runs_as_it_is_if_it_was_asked_for(config):
    sweep = plan_sweep(config, sweeps=["beta=0.5,1"], methods=["ce", "tpkd"], seeds=[1])
    assert [trial.settings for trial in sweep.trials] == [{}, {BETA: 0.5}, {BETA: 1}]
    assert sweep.grid.cells[0].name == "ce-as-configured-1"
    chosen = plan_sweep(config, sweeps=["beta=0.5,1"], seeds=[1]).grid.objectives
    assert chosen == tuple(method.name for method in describe() if "beta" in method.defaults)


def test_settings_of_a_method_in_the_configuration_stay(tmp_path):
    methods = {"tpkd": {"objective.settings": {"temperature": 2.0}, "optimizer.momentum": 0.5}}
    path = write_config(tmp_path, methods=methods)
    sweep = plan_sweep(path, ["epochs=2"], sweeps=["objective.settings.beta=1"], methods=["tpkd"], seeds=[1])
    config = sweep.grid.cells[0].config
    assert config.objective.settings == {"temperature": 2.0, "beta": 1}
    assert (config.optimizer.momentum, config.epochs) == (0.5, 2)


@pytest.mark.parametrize(
    ("sweep", "problem"),
    [
        (
            "bata=1",
            r"--sweep bata: expected a setting of the methods \(beta, temperature\), rate, or .*did you mean beta\?",
        ),
        ("kd_weight=1", r"--sweep kd_weight: expected a setting of the methods"),
        ("objective.settings.temprature=1", r"did you mean temperature\?"),
        ("rat=0.1", r"did you mean rate\?"),
        ("epochs=1,2", "--sweep epochs: expected a setting that cells need not share"),
        ("student.head=own,random", "--sweep student.head: expected a setting that cells need not share"),
        ("seed=1,2", "--sweep seed: expected a setting of"),
        ("objective.name=ce,kd", "--sweep objective.name: expected a setting of"),
        ("optimizer.momntum=0.5", r"optimizer.momntum: unknown key, .*did you mean momentum\?"),
        ("rate=-1", "optimizer.learning_rate: Input should be greater than 0"),
    ],
)
def test_what_cannot_be_swept_is_named(config, sweep, problem):
    with pytest.raises(InputError, match=problem):
        plan_sweep(config, sweeps=[sweep], methods=["ce", "tpkd"], seeds=[1])


def test_directories_are_plain_names_and_do_not_depend_on_the_order():
    assert variant_name({BETA: 1, RATE: 0.1}) == variant_name({RATE: 0.1, BETA: 1.0}) == "beta=1,rate=0.1"
    odd = [variant_name({"optimizer.betas": [0.9, value]}) for value in (0.99, 0.999)]
    assert odd[0] != odd[1]
    assert all(set("/ []") & set(name) == set() for name in odd)
    long = [variant_name({"x": f"{'../' * 99}{end}"}) for end in "ab"]
    assert long[0] != long[1]
    assert all(len(name) < 100 and "/" not in name for name in long)


def test_what_earlier_calls_started_stays(config):
    first = plan_sweep(config, sweeps=["beta=0.5,1"], methods=["tpkd"], seeds=[1])
    for cell in first.grid.cells[:1]:
        cell.directory.mkdir(parents=True)
        (cell.directory / "config.yaml").write_text("")
    known = [(trial, 1) for trial in first.trials]
    again = plan_sweep(config, sweeps=["temperature=4"], methods=["kd"], seeds=[2], known=known)
    assert [(trial.objective, trial.settings) for trial in again.trials] == [
        ("kd", {TEMPERATURE: 4}),
        ("tpkd", {BETA: 0.5}),
    ]
    assert [(cell.name, cell.asked) for cell in again.grid.cells] == [
        ("kd-temperature=4-2", True),
        ("tpkd-beta=0.5-1", False),
    ]
    assert (again.grid.seeds, again.keys) == ((1, 2), (TEMPERATURE, BETA))
    gone = [(Trial("of-a-package-that-is-gone", {BETA: 0.5}), 1)]
    assert len(plan_sweep(config, sweeps=["temperature=4"], methods=["kd"], seeds=[2], known=gone).trials) == 1


def test_an_earlier_sweep_of_keys_that_the_configuration_has_no_longer_is_named(config):
    (cell,) = plan_sweep(config, sweeps=["optimizer.momentum=0.5"], methods=["ce"], seeds=[1]).grid.cells
    cell.directory.mkdir(parents=True)
    (cell.directory / "config.yaml").write_text("")
    known = [(Trial("ce", {"optimizer.momentum": 0.5}), 1)]
    adam = ["optimizer={name: adam-weight-decay, learning_rate: 0.1}"]
    problem = (
        "optimizer.momentum: unknown key, .*: an earlier sweep in .*sweep does not go with this configuration; take"
    )
    with pytest.raises(InputError, match=problem):
        plan_sweep(config, adam, sweeps=["rate=0.1"], methods=["ce"], seeds=[1], known=known)
