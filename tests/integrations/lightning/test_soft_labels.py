"""Labels that are probabilities in a Lightning step, and settings such as a temperature."""

import pytest
import torch

from integrations.lightning.test_monitor import Keep
from integrations.lightning.tiny import CLASSES, Student, assert_close, data, fit, network, own_gradients, soft_data
from tpkd import tpkd_loss
from tpkd.integrations.lightning import DistillationModule, MonitorCallback
from tpkd.objectives import create, names
from tpkd.theory import observe

SETTINGS = {"temperature": 4.0, "beta": 1.0}
SOFT = [name for name in names() if create(name).takes_soft_labels]


def parts(inputs, labels, size):
    return list(zip(inputs.split(size), labels.split(size), strict=True))


@pytest.mark.parametrize("name", SOFT)
def test_every_objective_with_soft_labels_gives_the_gradient_of_our_own_loop(name):
    (inputs, labels), teacher, student = soft_data(), network(7), Student()
    (found,) = fit(student.distill_from(teacher, name), parts(inputs, labels, 16), accumulate_grad_batches=4)
    assert_close(found, own_gradients(student, teacher, inputs, labels, create(name)))
    valid = labels.any(-1).view(4, 16).sum(-1)
    assert len(set(valid.tolist())) > 2, "the mask must be uneven over micro-batches"


@pytest.mark.parametrize("make", [data, soft_data], ids=["classes", "soft"])
def test_the_gradient_is_that_of_the_loss_at_its_temperature(make):
    (inputs, labels), teacher, net = make(), network(7), network(0)
    (found,) = fit(Student().distill_from(teacher, **SETTINGS), parts(inputs, labels, 64))
    tpkd_loss(net(inputs), teacher(inputs).detach(), labels, **SETTINGS).backward()
    assert_close(found, {f"net.{name}": each.grad for name, each in net.named_parameters()})


def test_positions_are_counted_along_the_axis_of_cross_entropy():
    _, labels = soft_data()
    dense = labels.view(8, 8, CLASSES).movedim(-1, 1)
    student = DistillationModule().distill_from(None, "ce")
    student.distillation_loss(torch.zeros(8, CLASSES, 8, requires_grad=True), dense)
    assert student._count == labels.any(-1).sum()


@pytest.mark.parametrize("pieces", [1, 4])
def test_the_monitor_sees_sets(pieces):
    (inputs, labels), keep = soft_data(), Keep()
    student = Student().distill_from(network(7))
    callbacks = [MonitorCallback(every=1, prefix=""), keep]
    fit(student, parts(inputs, labels, 64 // pieces), callbacks, accumulate_grad_batches=pieces)
    expected = observe(network(0)(inputs), network(7)(inputs), labels)
    assert keep.logged[-1] == pytest.approx({name: each.item() for name, each in expected.items()}, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "name", "message"),
    [
        (lambda labels: 2 * labels, "kd", "expected probabilities.* sum 2 at row"),
        (lambda labels: 0.9 * labels + 0.02, "tpkd", "got 0 at row 0; label smoothing gives every class mass"),
        (lambda labels: labels.sum(-1), "tpkd", r"expected the shape of the logits \(64, 5\)"),
        (lambda labels: labels, "dkd", "objective 'dkd' takes integer classes"),
    ],
    ids=["no probabilities", "smoothed", "regression", "dkd"],
)
def test_what_is_no_probability_and_who_takes_none_are_named(change, name, message):
    inputs, labels = soft_data(ignored=0.0)
    with pytest.raises(ValueError, match=f"labels: .*{message}"):
        fit(Student().distill_from(network(7), name), [(inputs, change(labels))])
