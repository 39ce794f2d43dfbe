"""Class weights in a run: what each class counts, exact under any split of the batch."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional

from tpkd.config.loading import ConfigError
from tpkd.training.loop import train
from tpkd.training.run import assemble, start_accelerator
from tpkd.training.step import take_step
from tpkd.training.weights import class_weights_of
from training.steps import assert_close, first_steps
from training.tiny import ALIGNED, SEPARABLE, make_config, with_cache

CHOSEN = {"0": 3.0, "4": 0.0, "7": 0.25}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("weights")
    with_cache(directory)
    return directory


def weighted(directory, weights=CHOSEN, **changes):
    return make_config(directory, data={"name": "digits", "class_weights": weights}, **changes)


def make_run(config, directory):
    return assemble(config, start_accelerator(config), directory)


def test_balanced_classes_have_the_same_total(directory):
    run = make_run(weighted(directory, "balanced"), directory)
    labels = run.dataset.labels
    totals = np.array([run.class_weights[c].item() * (labels == c).sum() for c in range(10)])
    np.testing.assert_allclose(totals, len(labels) / 10, rtol=1e-6)  # float32


def test_a_class_without_samples_does_not_unbalance_the_others(directory):
    run = make_run(weighted(directory, "balanced"), directory)
    labels = np.where(run.dataset.labels == 3, 2, run.dataset.labels)
    found = class_weights_of(run.config, dataclasses.replace(run.dataset, labels=labels))
    assert found[torch.as_tensor(labels)].sum().item() == pytest.approx(len(labels), rel=1e-6)
    assert found.isfinite().all()


def test_classes_that_are_not_named_count_once(directory):
    run = make_run(weighted(directory), directory)
    assert run.class_weights.tolist() == [3.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.25, 1.0, 1.0]


def test_the_step_is_that_of_torchs_weighted_cross_entropy(directory):
    run = make_run(weighted(directory, objective="ce", batch_size=64, micro_batch_size=16), directory)
    samples = run.batches[0]
    loss = functional.cross_entropy(run.student(samples.inputs), samples.labels, weight=run.class_weights)
    expected = torch.autograd.grad(loss, list(run.student.parameters()))
    outcome = take_step(run, 1, samples)
    assert outcome.loss == pytest.approx(loss.item(), rel=1e-6)
    for parameter, gradient in zip(run.student.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", SEPARABLE)
def test_micro_batches_give_the_step_of_the_whole_batch(directory, name):
    """Under ignored labels too: `first_steps` leaves out none to all of them."""
    teacher = {"cache": str(directory / "cache"), "layers": [2]}
    objective = {"name": name, "settings": SEPARABLE[name]}
    found = [
        first_steps(
            weighted(directory, objective=objective, teacher=teacher, batch_size=64, micro_batch_size=size), directory
        )
        for size in (64, 16)
    ]
    assert_close(*found, 1e-6)  # float32: the same sums in another order
    plain = first_steps(
        make_config(directory, objective=objective, teacher=teacher, batch_size=64, micro_batch_size=64), directory
    )
    assert any((plain[key] - value).abs().max() > 1e-4 for key, value in found[0].items())


def test_the_monitor_does_not_know_weights(directory):
    outcomes = []
    for config in (weighted(directory), make_config(directory)):
        run = make_run(config, directory)
        outcomes.append(take_step(run, 1, run.batches[0], look=True))
    assert outcomes[0].monitor == outcomes[1].monitor
    assert outcomes[0].monitor
    assert outcomes[0].loss != outcomes[1].loss


def test_mixed_images_are_weighed_by_their_shares(directory):
    teacher = make_config(directory).teacher.model_dump(mode="json") | {"mixed": "mixture"}
    views = {"num_views": 8, "pad": 1, "scale": 16, "mixup": 0.4}
    config = weighted(directory, objective="ce", views=views, teacher=teacher, batch_size=64, micro_batch_size=16)
    run = make_run(config, directory)
    samples = run.batches[0]
    assert samples.labels.is_floating_point()
    shares = samples.labels.float()
    w = shares @ run.class_weights
    losses = functional.cross_entropy(run.student(samples.inputs), shares, reduction="none")
    assert take_step(run, 1, samples).loss == pytest.approx(((w * losses).sum() / w.sum()).item(), rel=1e-5)


def test_a_run_with_weights_ends_and_says_so_in_its_configuration(directory):
    result = train(weighted(directory, "balanced"), directory / "run")
    assert result.steps == 15
    assert "class_weights: balanced" in (directory / "run" / "config.yaml").read_text()


@pytest.mark.parametrize(("name", "settings"), [("dhkd", ALIGNED), ("dto-kd", {})])
def test_an_objective_that_is_not_a_sum_refuses_them(directory, name, settings):
    config = weighted(directory, objective={"name": name, "settings": settings})
    with pytest.raises(ConfigError, match=rf"data.class_weights: expected none: objective '{name}' .* not a sum"):
        make_run(config, directory)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"fuor": 2.0}, r"data.class_weights: expected classes of digits, found 'fuor'"),
        ({str(digit): 0.0 for digit in range(10)}, r"data.class_weights: expected a class .* above 0, found none"),
    ],
)
def test_weights_that_do_not_fit_the_data_are_refused(directory, weights, message):
    with pytest.raises(ConfigError, match=message):
        make_run(weighted(directory, weights), directory)


@pytest.mark.parametrize("weights", ["equal", {"0": -1.0}])
def test_weights_of_no_such_kind_are_refused(directory, weights):
    with pytest.raises(ValueError, match=r"data.class_weights"):
        weighted(directory, weights)
