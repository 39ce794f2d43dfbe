"""Runs with several teachers: what is learned, what is monitored, what is refused, and that they resume exactly."""

import dataclasses

import pytest
import torch

from tpkd.errors import InputError
from tpkd.geometry import average_conditionals, average_probabilities
from tpkd.objectives import create, names
from tpkd.teacher import caching
from tpkd.teacher.several import SeveralTeachers
from tpkd.theory.monitor import OF_THE_STEP, observe
from tpkd.training.loop import train
from tpkd.training.run import assemble, start_accelerator
from tpkd.training.step import take_step
from training.equality import assert_same_run, metrics_of
from training.tiny import SETTINGS, teacher_weights
from training.two_teachers import cached, entry, one_teacher, second_weights, two_teachers

AVERAGING = [name for name in names() if create(name, **SETTINGS.get(name, {})).teacher_average]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A directory with two teachers and their caches."""
    directory = tmp_path_factory.mktemp("several")
    caching.build_all(cached(directory))
    return directory


def make_run(config, directory):
    return assemble(config, start_accelerator(config), directory)


def first_step(config, directory, *, look=False):
    """Losses and gradients of the first step, and what the monitor saw."""
    run = make_run(config, directory)
    outcome = take_step(run, 1, run.batches[0], look=look)
    gradients = {name: parameter.grad.clone() for name, parameter in run.student.named_parameters()}
    return outcome, gradients


def close(found, expected, tolerance=2e-5):
    """Up to the rounding of float32 sums over a batch."""
    return all(torch.allclose(found[name], expected[name], rtol=0, atol=tolerance) for name in expected)


class StopError(Exception):
    pass


def stop(report):
    if report.step == 6:
        raise StopError


def test_a_list_of_one_teacher_is_that_teacher_with_the_same_bits(shared, tmp_path):
    alone = one_teacher(shared)
    listed = two_teachers(shared, teachers=[entry(teacher_weights(shared), weight=3.0)])
    assert listed == alone
    train(alone, tmp_path / "alone")
    train(listed, tmp_path / "listed")
    assert_same_run(tmp_path / "alone", tmp_path / "listed")


@pytest.mark.parametrize("name", AVERAGING)
def test_two_equal_teachers_teach_as_one_and_two_different_ones_do_not(shared, name):
    weights = teacher_weights(shared)
    objective = {"name": name, "settings": SETTINGS.get(name, {})}
    equal = two_teachers(shared, teachers=[entry(weights, weight=5.0), entry(weights)], objective=objective)
    _, expected = first_step(one_teacher(shared, objective=objective), shared)
    _, found = first_step(equal, shared)
    _, other = first_step(two_teachers(shared, objective=objective), shared)
    assert close(found, expected)
    if name != "compensation-only":  # a confidence push alone, which two teachers may share on a small batch
        assert not close(other, expected, 1e-4)


@pytest.mark.parametrize(("name", "average"), [("tpkd", average_conditionals), ("kd", average_probabilities)])
def test_the_step_learns_from_the_average_of_the_objective(shared, name, average):
    """Compared with one teacher that answers with the average, by a cache in its place."""
    run = make_run(two_teachers(shared, objective={"name": name, "settings": {"temperature": 3.0}}), shared)
    samples = run.batches[0]
    members = [
        member.answer(samples.inputs, samples.sample_ids, samples.view_ids).logits for member in run.teacher.members
    ]
    labels = (samples.labels,) if average is average_conditionals else ()
    teacher = average(members, *labels, weights=[2, 1], temperature=3.0)
    student = run.student.outputs(samples.inputs).logits
    create(name, temperature=3.0)(student, teacher, samples.labels).backward()
    expected = {name: parameter.grad.clone() for name, parameter in run.student.named_parameters()}
    run.optimizer.zero_grad()
    take_step(run, 1, samples)
    assert close({name: parameter.grad for name, parameter in run.student.named_parameters()}, expected)


def test_the_monitor_speaks_of_averaged_probabilities_and_of_the_protected_step(shared):
    run = make_run(two_teachers(shared, objective={"name": "tpkd", "settings": {"temperature": 3.0}}), shared)
    samples = run.batches[0]
    members = [member.answer(samples.inputs).logits for member in run.teacher.members]
    student = run.student.outputs(samples.inputs).logits.detach()
    mixture = average_probabilities(members, weights=[2, 1])
    whole = observe(student, mixture, samples.labels)
    taught = average_conditionals(members, samples.labels, weights=[2, 1], temperature=3.0)
    step = observe(student, taught, samples.labels, temperature=3.0)
    found = take_step(run, 1, samples, look=True).monitor
    for name, value in found.items():
        assert value == pytest.approx((step if name in OF_THE_STEP else whole)[name].item(), abs=1e-5), name
    assert step["compensation"].item() != pytest.approx(whole["compensation"].item(), abs=1e-3)


@pytest.mark.parametrize("name", ["tpkd", "kd", "dto-kd"])
def test_a_run_with_two_caches_continues_bit_for_bit(shared, tmp_path, name):
    config = cached(shared, objective=name)
    train(config, tmp_path / "whole")
    with pytest.raises(StopError):
        train(config, tmp_path / "parts", on_step=stop)
    train(config, tmp_path / "parts", resume=True)
    assert "continued from step 4" in (tmp_path / "parts" / "run.log").read_text()
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert any(line["kind"] == "monitor" for line in metrics_of(tmp_path / "whole"))


def test_a_cache_of_one_and_a_network_of_the_other_give_the_same_step(shared):
    both = first_step(cached(shared), shared)[1]
    mixed = first_step(cached(shared, ["teachers.1.cache=null"]), shared)[1]
    online = first_step(two_teachers(shared), shared)[1]
    assert close(both, online)
    assert close(mixed, online)


def test_a_run_is_bound_to_every_teacher_and_weight(shared, tmp_path):
    with pytest.raises(StopError):
        train(cached(shared), tmp_path / "run", on_step=stop)
    with pytest.raises(InputError, match=r"teachers\.0\.weight: expected 2\.0, found 3\.0"):
        train(cached(shared, ["teachers.0.weight=3"]), tmp_path / "run")
    weights = teacher_weights(shared), second_weights(shared)
    run = make_run(cached(shared), shared)
    assert isinstance(run.teacher, SeveralTeachers)
    found = {run.teacher.fingerprint}
    for teachers in ([entry(weights[0]), entry(weights[1])], [entry(weights[1]), entry(weights[0], weight=2.0)]):
        found.add(make_run(two_teachers(shared, teachers=teachers), shared).teacher.fingerprint)
    assert len(found) == 3


def test_micro_batches_add_up(shared):
    for name in ("tpkd", "kd"):
        whole, pieces = (
            first_step(two_teachers(shared, objective=name, micro_batch_size=size), shared)[1] for size in (32, 5)
        )
        assert close(whole, pieces)


def test_ignored_labels_count_for_nothing(shared):
    run = make_run(two_teachers(shared), shared)
    samples = run.batches[0]
    labels = samples.labels.clone()
    labels[::3] = -100
    outcome = take_step(run, 1, dataclasses.replace(samples, labels=labels), look=True)
    assert outcome.loss > 0
    assert outcome.monitor["label_loss"] > 0


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("dhkd", r"teachers: expected one teacher, found 2: objective 'dhkd' .*; keep one of them, or choose"),
        ({"name": "dp-u", "settings": {"temperature": 2.0}}, r"'dp-u' .* or set temperature=1, where"),
        ({"name": "dto-kd", "settings": {"layer_features": "own-objective"}}, "'dto-kd' .* or set layer_features=none"),
    ],
)
def test_objectives_without_an_average_are_refused_by_name(shared, objective, message):
    with pytest.raises(InputError, match=message):
        make_run(two_teachers(shared, objective=objective), shared)


def test_cross_entropy_has_nothing_to_average_and_is_monitored(shared):
    outcome, _ = first_step(two_teachers(shared, objective="ce"), shared, look=True)
    assert outcome.monitor["blocked_share"] >= 0


def test_mixed_images_of_caches_and_networks(shared):
    """A cache answers by the mixture of two rows, a network sees the mixed image; the average takes both."""
    views = {"num_views": 8, "pad": 1, "scale": 16, "mixup": 0.8}
    with pytest.raises(InputError, match=r"teachers\.0\.mixed: missing"):
        cached(shared, views=views)
    overrides = ["teachers.0.mixed=mixture", "teachers.1.cache=null"]
    outcome, _ = first_step(cached(shared, overrides, views=views), shared, look=True)
    assert outcome.loss > 0


def test_a_name_that_no_network_has_is_said_with_its_place(shared, tmp_path):
    weights = teacher_weights(shared)
    for change, message in (
        ({"model": "builtin:mpl"}, r"teachers\.1: .*builtin:mlp"),
        ({"weights": None}, r"teachers\.1\.weights: expected trained weights, .*teachers\.1\.untrained: true asks"),
        ({"weights": str(tmp_path / "teacher.none")}, r"teachers\.1: .*/teacher\.none"),
    ):
        config = two_teachers(shared, teachers=[entry(weights), entry(weights) | change])
        with pytest.raises(InputError, match=message):
            train(config, tmp_path / "run")
