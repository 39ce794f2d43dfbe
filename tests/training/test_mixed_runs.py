"""Runs on mixed images: the same for any split of the work, and the teacher knows what the student sees."""

import dataclasses
import math

import pytest
import torch

from tpkd.data.configured import load_data
from tpkd.data.views import DIGITS_VIEWS
from tpkd.errors import InputError
from tpkd.models.classifier import Classifier
from tpkd.objectives import create, names
from tpkd.teacher.cache.read import open_cache
from tpkd.training.loop import train
from tpkd.training.run import assemble, start_accelerator
from tpkd.training.step import NonFiniteError, take_step
from training.equality import assert_same_run, metrics_of
from training.soft import MIXED, mixed_config, online_config
from training.tiny import SETTINGS, make_config, with_cache

TAKING = [name for name in names() if create(name, **SETTINGS.get(name, {})).takes_soft_labels]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A directory with a teacher and its cache, which was built by a configuration that mixes nothing."""
    directory = tmp_path_factory.mktemp("mixed")
    with_cache(directory)
    return directory


def make_run(config, directory):
    return assemble(config, start_accelerator(config), directory)


class InterruptedRunError(Exception):
    pass


def interrupt(report):
    if report.step == 6:
        raise InterruptedRunError


@pytest.mark.parametrize("make", [mixed_config, online_config], ids=["cache", "online"])
def test_a_run_continues_bit_for_bit(shared, tmp_path, soft, make):
    config = make(shared)
    train(config, tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        train(config, tmp_path / "parts", on_step=interrupt)
    train(config, tmp_path / "parts", resume=True)
    assert "continued from step 4" in (tmp_path / "parts" / "run.log").read_text()
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    losses = [line["loss"] for line in metrics_of(tmp_path / "whole") if line["kind"] == "epoch"]
    assert losses[-1] < losses[0]


def test_workers_change_nothing_and_mixing_does(shared, tmp_path, soft):
    for name, changes in {"none": {}, "one": {"workers": 1}, "mixup": {"views": MIXED | {"cutmix": 0}}}.items():
        train(mixed_config(shared, **changes), tmp_path / name)
    assert_same_run(tmp_path / "none", tmp_path / "one")
    assert metrics_of(tmp_path / "none") != metrics_of(tmp_path / "mixup")


@pytest.mark.parametrize("key", ["views.mixup", "views.cutmix"])
def test_a_run_is_not_continued_with_another_parameter(shared, tmp_path, soft, key):
    with pytest.raises(InterruptedRunError):
        train(mixed_config(shared), tmp_path / "run", on_step=interrupt)
    with pytest.raises(InputError, match=rf"{key}: .*0\.75"):
        train(mixed_config(shared, [f"{key}=0.75"]), tmp_path / "run")


@pytest.mark.parametrize("micro", [1, 5, 16])
def test_micro_batches_are_the_same_images_and_give_the_same_gradient(shared, soft, micro):
    whole, pieces = (make_run(mixed_config(shared, micro_batch_size=size), shared) for size in (32, micro))
    samples = whole.batches[1]
    gradients, inputs = [], []
    for run in (whole, pieces):
        shown = list(run.micro_batches(2, run.batches[1]))
        inputs.append(torch.cat([piece.inputs for piece in shown]))
        assert torch.equal(torch.cat([piece.labels for piece in shown]), samples.labels)
        assert torch.equal(torch.cat([piece.partners.own_shares for piece in shown]), samples.partners.own_shares)
        take_step(run, 2, run.batches[1])
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in run.student.parameters()]))
    assert torch.equal(*inputs)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=1e-6)


def test_samples_with_a_label_of_zeros_do_not_count(shared, soft):
    """The gradient is the mean over the others, and what a step sees after it is told which they are."""
    run = make_run(mixed_config(shared, micro_batch_size=7), shared)
    samples = run.batches[0]
    kept = torch.arange(32) % 3 > 0
    outcome = take_step(run, 1, dataclasses.replace(samples, labels=samples.labels * kept.unsqueeze(-1)))
    found = [parameter.grad.clone() for parameter in run.student.parameters()]
    after = soft.shown[-1]
    assert torch.equal((after.labels != 0).any(-1), kept)

    fresh = make_run(mixed_config(shared), shared)
    part = samples.take(kept.nonzero().squeeze(-1))
    log_probs = fresh.student(part.inputs).log_softmax(-1)
    targets = part.labels + after.teacher_logits[kept].softmax(-1)
    loss = -(targets * log_probs).sum(-1).mean()
    loss.backward()
    assert outcome.loss == pytest.approx(loss.item(), rel=1e-5)
    for gradient, parameter in zip(found, fresh.student.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=0, atol=1e-6)


def test_a_cached_teacher_answers_with_the_mixture_of_both_images(shared, soft):
    run = make_run(mixed_config(shared), shared)
    assert run.teacher.remark == ""  # the cache of a run that mixes nothing is this run's cache
    cache = open_cache(shared / "cache")
    for step in (2, 3, 4):  # two boxes, then a weight of a third
        samples = run.batches[step - 1]
        soft.shown.clear()
        take_step(run, step, samples)
        answers = torch.cat([batch.teacher_logits for batch in soft.shown[:2]]).double()
        partners = samples.partners
        own = cache.read(samples.sample_ids, samples.view_ids).double().tolist()
        others = cache.read(partners.sample_ids, partners.view_ids).double().tolist()
        for row, share in enumerate(partners.own_shares.tolist()):
            first, second = ([math.exp(z) for z in logits[row]] for logits in (own, others))
            expected = [
                math.log(share * a / sum(first) + (1 - share) * b / sum(second))
                for a, b in zip(first, second, strict=True)
            ]
            assert answers[row].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_mixing_is_no_part_of_a_cache(shared, tmp_path):
    plain = open_cache(shared / "cache")
    config = with_cache(
        tmp_path, [f"teacher.weights={shared / 'teacher.safetensors'}", "teacher.mixed=mixture"], views=MIXED
    )
    assert open_cache(config.teacher.cache).answers_sha256 == plain.answers_sha256


def test_a_teacher_that_runs_sees_the_mixed_images(shared, soft, monkeypatch):
    run = make_run(online_config(shared), shared)
    seen = {"student": [], "teacher": []}
    outputs = Classifier.outputs

    def watch(self, inputs, layers=()):
        seen["teacher" if self is run.teacher.model else "student"].append(inputs)
        return outputs(self, inputs, layers)

    monkeypatch.setattr(Classifier, "outputs", watch)
    changed = []
    for step in (2, 3, 4):  # two boxes, then a weight of a third
        samples, plain = run.batches[step - 1], dataclasses.replace(run.batches, mixing=None)[step - 1]
        for images in seen.values():
            images.clear()
        take_step(run, step, samples)
        for images in seen.values():
            assert torch.equal(torch.cat(images[:2]), samples.inputs)
        changed.append((samples.inputs != plain.inputs).sum().item())
        answers = torch.cat([batch.teacher_logits for batch in soft.shown[-3:-1]])
        torch.testing.assert_close(answers, run.teacher(samples.inputs), rtol=0, atol=1e-5)
        assert not torch.allclose(answers, run.teacher(plain.inputs), atol=1e-2)
    assert all(count > 100 for count in changed)


def test_evaluation_is_never_mixed(shared, tmp_path, soft, monkeypatch):
    seen = []
    forward = Classifier.forward

    def watch(self, inputs, *arguments, **options):
        if not self.training:
            seen.append(inputs)
        return forward(self, inputs, *arguments, **options)

    monkeypatch.setattr(Classifier, "forward", watch)
    train(mixed_config(shared), tmp_path / "run")
    test = load_data(mixed_config(shared), "test")
    assert torch.equal(torch.cat(seen)[-100:], DIGITS_VIEWS.render_plain(test.inputs))


def test_a_sample_whose_logits_are_not_finite_is_named(shared, soft):
    run = make_run(online_config(shared), shared)
    samples = run.batches[0]
    inputs = samples.inputs.clone()
    inputs[20] = float("nan")
    with pytest.raises(NonFiniteError, match=rf"not finite for samples {samples.sample_ids[20]};"):
        take_step(run, 1, dataclasses.replace(samples, inputs=inputs))


@pytest.mark.parametrize("make", [mixed_config, online_config], ids=["cache", "online"])
def test_the_monitor_looks_at_mixed_batches(shared, soft, make):
    run = make_run(make(shared), shared)
    samples = run.batches[0]
    ignored = torch.arange(32) < 4
    labels = samples.labels.masked_fill(ignored.unsqueeze(-1), 0.0)
    soft.shown.clear()
    seen = take_step(run, 1, dataclasses.replace(samples, labels=labels), look=True).monitor
    assert 0 <= seen["blocked_share"] <= 1
    log_probs = torch.cat([batch.student_logits for batch in soft.shown[:2]]).detach().log_softmax(-1)
    expected = -(labels * log_probs).sum(-1)[~ignored].mean().item()
    assert seen["label_loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", TAKING)
def test_every_objective_that_takes_soft_labels_learns_from_mixed_images(shared, tmp_path, name):
    """From a cache, looked at on the way, in micro-batches or whole."""
    gradients = []
    for micro in (None, 7):
        config = make_config(
            shared, ["teacher.mixed=mixture"], views=MIXED, objective=name, micro_batch_size=micro, monitor_every=1
        )
        run = make_run(config, shared)
        outcome = take_step(run, 1, run.batches[0], look=True)
        assert outcome.monitor["label_loss"] > 0
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in run.student.parameters()]))
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)
    train(config, tmp_path / "run")
    losses = [line["loss"] for line in metrics_of(tmp_path / "run") if line["kind"] == "epoch"]
    assert losses[-1] < losses[0]
