"""States from files are studied as snapshots are: the same weights and moments give the same numbers."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from mechanism.plain_training import PlainTraining
from oracles import conditional_loss
from tpkd.config.finished import FinishedConfig
from tpkd.errors import InputError
from tpkd.mechanism.blocking import study_blocking
from tpkd.mechanism.certificates import OBJECTIVES, study_certificates
from tpkd.mechanism.continuation import study_continuation
from tpkd.mechanism.exact_head import study_exact_head
from tpkd.mechanism.given import GivenState, parse_states, without_start
from tpkd.mechanism.record import FRESH, CertificatesRecord
from tpkd.mechanism.studies import run_study
from tpkd.training.finishing import tidy

THEIR_ORDER = ("fc.weight", "fc.bias", "layers.0.weight", "layers.0.bias")


@pytest.fixture(scope="module")
def plain(ce_run, tmp_path_factory):
    """The run without dropout, whose random numbers a file of weights does not have; and its numbers from snapshots."""
    config = ce_run.changed(
        **{"student.options.dropout": 0, "study.certificates.batches": 2, "study.continuation.iterations": 3}
    )
    return config, ce_run.copy(tmp_path_factory.mktemp("plain") / "run", config)


@pytest.fixture(scope="module")
def files(ce_run, tmp_path_factory):
    """The state after epoch 6 as another program would write it: its own names, its own order, all in one group."""
    directory, state = tmp_path_factory.mktemp("files"), ce_run.state(6)
    ours = list(dict(ce_run.student(6).named_parameters()))
    theirs = {name: name.replace("layers.0", "module.body").replace("fc", "module.top") for name in THEIR_ORDER}
    weights = {theirs[name]: state["model"][name] for name in THEIR_ORDER}
    moments = {
        place: {"momentum_buffer": state["optimizer"][f"{ours.index(name)}.momentum_buffer"]}
        for place, name in enumerate(THEIR_ORDER)
    }
    torch.save({"state_dict": weights, "epoch": 6}, directory / "weights.pth")
    groups = [{"lr": 0.3, "momentum": 0.5, "params": [0, 1, 2, 3]}]
    torch.save({"optimizer": {"state": moments, "param_groups": groups}}, directory / "optimizer.pt")
    save_file(weights, directory / "weights.safetensors")
    own = {ours.index(name): moments[place] for place, name in enumerate(THEIR_ORDER)}
    torch.save({"state": own, "param_groups": groups}, directory / "own-order.pt")
    return directory


def mapped(config):
    student = config.student.model_copy(update={"weight_map": {"body": "layers.0", "top": "fc"}})
    return config.model_copy(update={"student": student})


@pytest.mark.parametrize(
    ("weights", "optimizer"), [("weights.pth", "optimizer.pt"), ("weights.safetensors", "own-order.pt")]
)
def test_every_study_finds_on_files_what_it_finds_on_the_snapshot(plain, files, weights, optimizer):
    config, directory = plain
    given = (GivenState("CE6", files / weights, files / optimizer),)
    only = {"blocking": {"states": (6,)}, "exact_head": {"states": (6,)}, "certificates": {"states": (6,)}}
    study = config.study.model_copy(
        update={
            **{name: getattr(config.study, name).model_copy(update=change) for name, change in only.items()},
            "continuation": config.study.continuation.model_copy(update={"state": 6}),
        }
    )
    config = config.model_copy(update={"study": study})
    weights_alone = (GivenState("CE6", files / weights),)
    one, other = study_blocking(config, directory), study_blocking(mapped(config), states=weights_alone)
    for ours, theirs in zip(one.splits, other.splits, strict=True):
        assert (ours.states[0].blocked, ours.states[0].views) == (theirs.states[0].blocked, theirs.states[0].views)
    one, other = study_exact_head(config, directory), study_exact_head(mapped(config), states=weights_alone)
    assert one.states[0].batches == other.states[0].batches
    one, other = study_certificates(config, directory), study_certificates(mapped(config), states=given)
    assert one.states[0].batches == other.states[0].batches
    about = other.states[0].state
    assert (about.name, about.epoch, about.step) == ("CE6", None, None)
    assert (about.file, about.optimizer) == (weights, optimizer)
    assert about.student_fingerprint == one.states[0].state.student_fingerprint
    one, other = study_continuation(config, directory), study_continuation(mapped(config), states=given)
    assert one.curves == other.curves


def test_a_checkpoint_directory_of_ours_brings_its_optimiser(plain, ce_run):
    config, directory = plain
    snapshots = directory / "snapshots" / "epoch-010"
    (checkpoint,) = snapshots.iterdir()
    expected = study_certificates(config, directory).states[1]
    for path in (snapshots, checkpoint):
        found = study_certificates(config, states=(GivenState("last", path),)).states[0]
        assert found.batches == expected.batches
        assert (found.state.step, found.state.optimizer) == (expected.state.step, path.name)


def test_without_a_state_the_optimiser_has_no_history_and_the_record_says_so(plain, ce_run, files):
    config, _ = plain
    record = study_certificates(mapped(config), states=(GivenState("CE6", files / "weights.pth"),))
    state = record.states[0]
    assert state.state.optimizer == FRESH
    row = state.batches[1]
    teachers = ce_run.cached(row.sample_ids, row.view_ids)
    for objective in OBJECTIVES:
        training = PlainTraining(ce_run, 6)
        training.model.dropout.p = 0.0
        training.momenta = [torch.zeros_like(momentum) for momentum in training.momenta]
        training.step(objective, row.sample_ids, row.view_ids)
        logits, labels = training.logits(row.sample_ids, row.view_ids)
        losses = [conditional_loss(*case) for case in zip(logits, teachers, labels, strict=True)]
        # One float32 iteration in another order of sums.
        assert row.conditional_loss[objective] == pytest.approx(sum(losses) / len(losses), abs=1e-5)
    assert CertificatesRecord.from_json(record.to_json()) == record


def test_the_order_of_states_does_not_matter(plain, files):
    """Iterations at one state leave nothing behind for the next, whose optimiser is fresh."""
    config, _ = plain
    fresh, known = (
        GivenState("A", files / "weights.pth"),
        GivenState("B", files / "weights.pth", files / "optimizer.pt"),
    )
    first = study_certificates(mapped(config), states=(fresh, known)).states
    second = study_certificates(mapped(config), states=(known, fresh)).states
    assert first[0].batches == second[1].batches
    assert first[1].batches == second[0].batches
    assert first[0].batches != first[1].batches


def test_a_given_state_needs_no_start(ce_run):
    """Neither pretrained weights nor a probe, which would be fetched and fitted only to be overwritten."""
    config = ce_run.changed(**{"student.head": "probe", "student.weights": "nowhere.pth"})
    student = without_start(config).student
    assert (student.weights, student.head, student.weight_map) == (None, "random", {})
    weights = ce_run.directory / "snapshots" / "epoch-010.safetensors"
    study_blocking(config, ce_run.root / "no-run", states=(GivenState("CE10", weights),))
    assert not (ce_run.root / "no-run").exists()


def test_records_of_files_are_kept_apart_from_those_of_the_run(ce_run, tmp_path):
    directory = ce_run.copy(tmp_path / "run", ce_run.config)
    config = ce_run.studied("blocking.samples=5")
    run_study("blocking", config, directory)
    own = (directory / "studies" / "blocking.json").read_bytes()
    weights = ce_run.directory / "snapshots" / "epoch-010.safetensors"
    run_study("blocking", config, directory, states=(GivenState("mine", weights),))
    assert (directory / "studies" / "blocking.json").read_bytes() == own
    assert (directory / "studies" / "given" / "blocking.json").exists()


def test_options_are_pairs_of_names_and_paths():
    first, second = parse_states(["A=a=b.pth", "B=c.pth"], ["A=o.pt"])
    assert (first.name, str(first.weights), str(first.optimizer)) == ("A", "a=b.pth", "o.pt")
    assert (second.name, second.optimizer) == ("B", None)
    for states, optimizers in ((["A"], []), (["A="], []), (["=a"], []), (["A=a", "A=b"], []), (["A=a"], ["B=b"])):
        with pytest.raises(InputError, match=r"--(optimizer-)?state"):
            parse_states(states, optimizers)


def test_a_snapshot_that_kept_its_weights_alone_is_studied_with_a_fresh_optimiser(plain, tmp_path):
    config, whole = plain
    directory = shutil.copytree(whole, tmp_path / "run")
    tidy(directory, FinishedConfig(snapshots="weights"))
    expected = study_blocking(config, whole)
    assert replace_steps(study_blocking(config, directory), expected) == expected
    record = study_certificates(config, directory)
    assert [(state.state.name, state.state.epoch, state.state.file) for state in record.states] == [
        ("CE2", 2, None),
        ("CE10", 10, None),
    ]
    assert [state.state.optimizer for state in record.states] == [FRESH, FRESH]
    weights = directory / "snapshots" / "epoch-010.safetensors"
    fresh = study_certificates(config, states=(GivenState("CE10", weights),))
    assert record.states[1].batches == fresh.states[0].batches
    result = directory / "result.json"
    data = json.loads(result.read_text())
    result.write_text(json.dumps(data | {"data_fingerprint": "other"}))
    with pytest.raises(InputError, match=r"epoch-002\.safetensors: data: expected 'other', as the run had"):
        study_certificates(config, directory)


def replace_steps(record, other):
    """The record with the steps of another one, which a file of weights does not know."""
    splits = []
    for split, whole in zip(record.splits, other.splits, strict=True):
        pairs = zip(split.states, whole.states, strict=True)
        states = tuple(replace(one, state=replace(one.state, step=two.state.step)) for one, two in pairs)
        splits.append(replace(split, states=states))
    return replace(record, splits=tuple(splits))
