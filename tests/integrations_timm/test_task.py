"""The task's gradient is the objective's, and the teacher is seen by nobody else."""

import copy

import pytest
import timm
import torch
from timm.optim import create_optimizer_v2
from timm.task import ClassificationTask, DistillationTeacher

from integrations_timm.tiny import CLASSES, NETWORK, assert_gradients_close, gradients, images, labels, network
from tpkd import dkd_loss, kd_loss, kl_dist_loss, named_direction, tpkd_loss, xe_kl_loss
from tpkd.errors import InputError
from tpkd.integrations.timm import DistillationTask
from tpkd.objectives import create
from tpkd.theory import diagnose, observe

NO_WARMUP = {"warmup_epochs": 0}  # timm's loop tells no task which epoch it is
LOSSES = {"tpkd": tpkd_loss, "kd": kd_loss, "dkd": dkd_loss, "kl-dist": kl_dist_loss, "xe-kl": xe_kl_loss}
DIRECTIONS = ("ce", "tpkd", "tpkd-no-ce", "safe-full-kl", "tpkd-no-projection", "compensation-only")


def both():
    return network(0), network(1)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_a_plain_loop(name):
    student, teacher = both()
    own = copy.deepcopy(student)
    with torch.no_grad():
        answers = teacher.eval()(images(16))
    loss = LOSSES[name](own(images(16)), answers, labels(16))
    loss.backward()
    result = DistillationTask(student, teacher, name, settings=NO_WARMUP if name == "dkd" else {})(
        images(16), labels(16)
    )
    result["loss"].backward()
    assert result["loss"].item() == pytest.approx(loss.item(), rel=1e-12)
    assert_gradients_close(gradients(student), gradients(own))
    torch.testing.assert_close(result["teacher_output"], answers, rtol=0, atol=0)


@pytest.mark.parametrize("name", DIRECTIONS)
def test_gradients_are_the_direction_of_the_paper(name):
    """Backpropagating the direction itself, without a loss."""
    student, teacher = both()
    own = copy.deepcopy(student)
    logits = own(images(16))
    direction = named_direction(name, logits.detach(), teacher.eval()(images(16)).detach(), labels(16))
    logits.backward(direction / 16)
    DistillationTask(student, teacher, name)(images(16), labels(16))["loss"].backward()
    assert_gradients_close(gradients(student), gradients(own))


def test_four_micro_batches_are_one_batch():
    """As timm's loop accumulates: every loss divided by the number of pieces."""
    student, teacher = both()
    whole = DistillationTask(copy.deepcopy(student), teacher)
    whole(images(64), labels(64))["loss"].backward()
    pieces = DistillationTask(student, teacher)
    for inputs, target in zip(images(64).split(16), labels(64).split(16), strict=True):
        (pieces(inputs, target)["loss"] / 4).backward()
    assert_gradients_close(gradients(student), gradients(whole.trainable_module))


def test_the_objective_may_come_ready_made_and_settings_with_a_name():
    student, teacher = both()
    by_name = DistillationTask(student, teacher, "tpkd", settings={"beta": 0.25})
    ready = DistillationTask(student, teacher, create("tpkd", beta=0.25))
    expected = tpkd_loss(student(images(4)), teacher(images(4)), labels(4), beta=0.25)
    assert by_name(images(4), labels(4))["loss"] == ready(images(4), labels(4))["loss"] == expected


def test_it_takes_the_place_of_timms_own_task():
    student, teacher = both()
    plain, ours = ClassificationTask(student, torch.nn.CrossEntropyLoss()), DistillationTask(student, teacher, "ce")
    first, second = (task(images(4), labels(4)) for task in (plain, ours))
    assert first.keys() <= second.keys()
    torch.testing.assert_close(first["loss"], second["loss"])
    assert ours.get_trainable_module() is ours.get_eval_model() is student
    assert ours.state_dict().keys() == plain.state_dict().keys()
    assert list(ours.get_clip_parameters()) == list(student.parameters())


def test_the_teacher_is_hidden_frozen_and_stays_in_evaluation_mode():
    student = network(0)
    teacher = network(1, name="test_resnet", drop_rate=0.5)  # batch statistics and dropout
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    expected = copy.deepcopy(teacher).eval()(images(8))
    task = DistillationTask(student, teacher)
    optimizer = create_optimizer_v2(task, opt="sgd", lr=0.1, weight_decay=0.1)
    for mode in (task, teacher):
        result = mode.train() and task(images(8), labels(8))
        torch.testing.assert_close(result["teacher_output"], expected, rtol=0, atol=0)
        assert not result["teacher_output"].requires_grad
        result["loss"].backward()
        optimizer.step()
    assert all(value.equal(teacher.state_dict()[name]) for name, value in before.items())
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in teacher.parameters())
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    assert held == {id(parameter) for parameter in student.parameters()}
    assert not {id(module) for module in teacher.modules()} & {id(module) for module in task.modules()}
    assert [name for name in task.state_dict() if not name.startswith("trainable_module.")] == []


def test_the_teacher_moves_with_the_task():
    task = DistillationTask(network(0), network(1), teacher_mean=(0.1, 0.2, 0.3))
    assert task.dtype is torch.float64
    task.to(torch.float32)
    result = task(images(4, dtype=torch.float32), labels(4))
    assert task.dtype is result["output"].dtype is result["teacher_output"].dtype is torch.float32


def test_an_averaged_copy_is_of_the_student_alone():
    student, teacher = both()
    task = DistillationTask(student, teacher)
    averaged = task.setup_ema(decay=0.5)
    with torch.no_grad():
        student.get_classifier().bias.add_(1.0)
    task.update_ema()
    torch.testing.assert_close(averaged.module.get_classifier().bias, student.get_classifier().bias - 0.5)
    assert averaged.module.state_dict().keys() == student.state_dict().keys()


def test_mixed_precision_is_near_full_precision():
    student, teacher = network(0, dtype=torch.float32), network(1, dtype=torch.float32)
    task = DistillationTask(student, teacher)
    full = task(images(16, dtype=torch.float32), labels(16))["loss"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = task(images(16, dtype=torch.float32), labels(16))
    assert result["output"].dtype is torch.bfloat16
    assert result["loss"].dtype is torch.float32
    torch.testing.assert_close(result["loss"], full, rtol=0.05, atol=0)  # twenty layers that round to 8 bits
    result["loss"].backward()
    assert all(parameter.grad.isfinite().all() for parameter in student.parameters())


def test_compiled_it_is_the_same_task():
    student, teacher = both()
    task = DistillationTask(student, teacher)
    expected = task(images(4), labels(4))["loss"]
    compiled = task.compile(backend="eager")
    assert compiled is task.get_trainable_module() is task.get_eval_model()
    torch.testing.assert_close(task(images(4), labels(4))["loss"], expected)
    assert task.get_checkpoint_state()["state_dict"].keys() == student.state_dict().keys()


def test_a_teacher_by_name_brings_its_weights(tmp_path):
    teacher = network(1, dtype=torch.float32)
    torch.save(teacher.state_dict(), tmp_path / "teacher.pth")
    student = network(0, dtype=torch.float32)
    inputs = images(4, dtype=torch.float32)
    by_name = DistillationTask(student, NETWORK, teacher_pretrained_path=str(tmp_path / "teacher.pth"))
    wrapped = DistillationTask(student, DistillationTeacher(teacher))
    for task in (by_name, wrapped):
        torch.testing.assert_close(task(inputs, labels(4))["teacher_output"], teacher(inputs), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "missing"),
    [("dp-u", "initial_logits"), ("dhkd", "features"), ("dto-kd", "objective_gradients"), ("dkd", "epoch")],
)
def test_an_objective_timm_cannot_serve_is_refused_by_what_it_lacks(name, missing):
    with pytest.raises(InputError, match=f"objective '{name}' needs .*{missing}.*which timm cannot give"):
        DistillationTask(*both(), name)


def test_a_teacher_of_other_classes_is_refused():
    with pytest.raises(InputError, match=f"teacher_model: expected the {CLASSES} classes of the student, got 9"):
        DistillationTask(network(0), timm.create_model(NETWORK, num_classes=9))


def test_a_teacher_that_is_the_student_is_refused_and_nothing_frozen():
    student = network(0)
    with pytest.raises(InputError, match="teacher: expected a network of its own"):
        DistillationTask(student, student)
    assert all(parameter.requires_grad for parameter in student.parameters())


def test_what_the_task_returns_can_be_watched():
    """The call that the page about timm prints, for labels and for mixed images."""
    task = DistillationTask(*both())
    other = torch.nn.functional.one_hot((labels(8) + 1) % CLASSES, CLASSES)
    mixed = 0.7 * torch.nn.functional.one_hot(labels(8), CLASSES) + 0.3 * other
    for target in (labels(8), mixed):
        result = task(images(8), target)
        seen = observe(result["output"], result["teacher_output"], target)
        expected = diagnose(result["output"].detach(), result["teacher_output"], target).summary()
        assert seen["blocked_share"].item() == pytest.approx(expected["blocked_share"])
        assert seen["label_loss"].item() == pytest.approx(expected["all"]["label_loss"], rel=1e-5)
