"""Objectives by name, in words, and what a batch and a base objective promise."""

from dataclasses import replace

import pytest
import torch

from objectives.cases import make_inputs
from tpkd.objectives import create, describe, kl_dist_loss, names
from tpkd.objectives.base import BATCH_NEEDS, LOOP_NEEDS


def test_names_are_the_contract():
    assert names()[:14] == (
        *("ce", "kd", "kl-dist", "dkd", "dp-u", "dp-s", "xe-kl", "dhkd", "dto-kd", "tpkd"),
        *("tpkd-no-ce", "safe-full-kl", "tpkd-no-projection", "compensation-only"),
    )


def test_defaults_are_the_papers_settings():
    defaults = {method.name: method.defaults for method in describe()}
    assert defaults["ce"] == {}
    assert defaults["kd"] == {"temperature": 4.0, "ce_weight": 1.0, "kd_weight": 1.0}
    assert defaults["kl-dist"] == defaults["dp-u"] == defaults["dp-s"] == {"temperature": 1.0}
    assert {"alpha": 1.0, "beta": 8.0, "temperature": 4.0, "warmup_epochs": 20}.items() <= defaults["dkd"].items()
    assert defaults["xe-kl"] == {"mix": 0.5, "temperature": 1.0, "label_term": "cross-entropy"}
    assert {"temperature": 2.0, "preset": "cifar-release"}.items() <= defaults["dhkd"].items()
    assert {"temperature": 1.0, "variant": "amortised", "normalise": True}.items() <= defaults["dto-kd"].items()
    for name in names()[9:14]:
        assert defaults[name] == {"beta": 0.5, "temperature": 1.0}


def test_descriptions_are_complete():
    methods = describe()
    assert tuple(method.name for method in methods) == names()
    for method in methods:
        assert method.summary
        assert method.source
        assert set(method.needs) <= BATCH_NEEDS | LOOP_NEEDS
        assert "\n" not in method.summary
        assert create(method.name, **method.defaults).name == method.name
    reconstructed = {method.name for method in methods if method.reconstruction}
    assert reconstructed == {"kd", "dkd", "xe-kl", "dhkd", "dto-kd"}


def test_an_unknown_name_lists_what_exists():
    with pytest.raises(ValueError, match=r"name: expected one of ce, kd, .*compensation-only.*, got 'hinton'"):
        create("hinton")


def test_an_unknown_setting_lists_what_exists():
    with pytest.raises(ValueError, match=r"settings: objective 'kd': expected some of temperature, .*got tau"):
        create("kd", tau=4.0)
    with pytest.raises(ValueError, match=r"settings: objective 'ce': it has none, got beta"):
        create("ce", beta=1.0)
    with pytest.raises(ValueError, match=r"settings: .*got _head"):
        create("dhkd", _head=None)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("kd", "temperature", 0.0),
        ("kd", "ce_weight", -1.0),
        ("dkd", "beta", -1.0),
        ("dkd", "warmup_epochs", -1),
        ("kl-dist", "temperature", -1.0),
        ("dp-u", "temperature", -1.0),
        ("xe-kl", "mix", 2.0),
        ("xe-kl", "label_term", "softmax"),
        ("tpkd", "beta", -1.0),
    ],
)
def test_bad_settings_are_refused_at_once(name, setting, value):
    with pytest.raises(ValueError, match=f"{setting}: expected"):
        create(name, **{setting: value})


@pytest.mark.parametrize(("warmup", "weights"), [(2, [0.5, 1, 1, 1]), (20, [0.05, 0.1, 0.15, 0.2]), (0, [1, 1, 1, 1])])
def test_dkd_warms_up_its_distillation_part_alone(warmup, weights):
    batch = make_inputs().batch()
    objective = create("dkd", warmup_epochs=warmup)
    ce = create("ce").losses(batch)["loss"]
    full = create("dkd", warmup_epochs=0).losses(batch)["loss"] - ce
    for epoch, weight in enumerate(weights, start=1):
        loss = objective.losses(replace(batch, epoch=epoch))["loss"]
        torch.testing.assert_close(loss, ce + weight * full)
    assert ("epoch" in objective.needs) == bool(warmup)


def test_partitions_report_how_often_they_pick_the_teacher():
    inputs = make_inputs(count=200, seed=6)
    labels = inputs.labels.clone()
    labels[::4] = -100
    broken = inputs.map(lambda tensor: tensor.masked_fill((labels == -100).unsqueeze(-1), torch.nan))
    teacher, initial = inputs.teacher.softmax(-1), inputs.initial.softmax(-1)
    rows = torch.arange(200)
    by_top = teacher.amax(-1) > initial.amax(-1)
    by_label = teacher[rows, inputs.labels] > initial[rows, inputs.labels]
    for name, chosen in (("dp-u", by_top), ("dp-s", by_label)):
        metrics = create(name).metrics(replace(broken, labels=labels).batch())
        expected = chosen[labels != -100].double().mean().item()
        assert metrics["teacher_selection_rate"].item() == pytest.approx(expected)
        assert 0.1 < expected < 0.9
        empty = replace(inputs, labels=torch.full_like(labels, -100)).batch()
        assert create(name).metrics(empty)["teacher_selection_rate"] == 0
    unlabelled = create("dp-u").metrics(replace(inputs.batch(), labels=None))
    assert unlabelled["teacher_selection_rate"].item() == pytest.approx(by_top.double().mean().item())


def test_objectives_without_labels_work_without_them():
    inputs = make_inputs()
    batch = replace(inputs.batch(), labels=None)
    assert create("kl-dist").losses(batch)["loss"] == kl_dist_loss(inputs.student, inputs.teacher)
    assert create("dp-u").losses(batch)["loss"] > 0


LINEAR_HEAD = {"preset": "imagenet-release", "feature_size": 4, "num_classes": 5}


@pytest.mark.parametrize("name", names())
def test_one_loss_a_position_is_the_loss_of_that_position_alone(name):
    inputs = make_inputs(dtype=torch.float32)
    objective = create(name, **LINEAR_HEAD if name == "dhkd" else {})
    rows = replace(inputs.batch(), reduction="none")
    if not objective.separable:
        with pytest.raises(ValueError, match=f"reduction: expected 'mean', got 'none': objective '{name}' is not a"):
            objective.losses(rows)
        return
    alone = [objective.losses(inputs.rows([row]).batch()) for row in range(len(inputs.labels))]
    for key, losses in objective.losses(rows).items():
        # One row or twelve: a matrix product may sum in another order.
        torch.testing.assert_close(losses, torch.stack([single[key] for single in alone]), rtol=1e-5, atol=1e-6)
