"""Mixed images: one loss on the set of both labels, or the weighted sum of two losses with hard labels."""

import copy

import numpy as np
import pytest
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from torch import nn
from torch.nn.functional import one_hot

from integrations_timm.tiny import CLASSES, assert_gradients_close, gradients, images, labels, network
from tpkd import tpkd_loss
from tpkd.errors import InputError
from tpkd.integrations import timm as drop_in
from tpkd.integrations.timm import DistillationTask
from tpkd.integrations.timm_targets import recover_labels
from tpkd.objectives import Batch, create, names

SERVED = [name for name in names() if name not in ("dp-u", "dp-s", "dhkd", "dto-kd")]
SOFT = [name for name in SERVED if create(name).takes_soft_labels]
NO_WARMUP = {"warmup_epochs": 0}


class Table(nn.Module):
    """A network whose logits are its parameters, so that a gradient is a direction of logits."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits.clone())

    def forward(self, images):
        return self.logits[: len(images)]


def table_task(student, teacher, **options):
    same = {"mean": (0.5,), "std": (0.5,), "teacher_mean": (0.5,), "teacher_std": (0.5,)}
    return DistillationTask(Table(student), Table(teacher), **same, **options)


def mixtures(first, second, weight, num_classes):
    return weight * one_hot(first, num_classes) + (1 - weight) * one_hot(second, num_classes)


def mixed_batch(count, mode="elem", seed=1):
    np.random.seed(seed)
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, mode=mode, label_smoothing=0.0, num_classes=CLASSES)
    inputs, targets = mixup(images(count), labels(count))
    return inputs, targets.double()


def own_gradients(student, teacher, inputs, loss):
    """Gradients of plain PyTorch, by a loss of the logits of both."""
    own = copy.deepcopy(student)
    with torch.no_grad():
        answers = teacher.eval()(inputs)
    loss(own(inputs), answers).backward()
    return gradients(own)


@pytest.mark.parametrize("settings", [{}, {"temperature": 4.0, "beta": 1.0}], ids=["paper", "temperature"])
@pytest.mark.parametrize("mode", ["batch", "elem"])
def test_gradients_are_those_of_one_loss_with_soft_labels(mode, settings):
    student, teacher = network(0), network(1)
    inputs, targets = mixed_batch(16, mode)
    soft = targets / targets.sum(-1, keepdim=True)
    assert (soft.count_nonzero(-1) == 2).any()
    expected = own_gradients(student, teacher, inputs, lambda z, t: tpkd_loss(z, t, soft, **settings))
    DistillationTask(student, teacher, "tpkd", settings=settings)(inputs, targets)["loss"].backward()
    assert_gradients_close(gradients(student), expected)


@pytest.mark.parametrize("name", SOFT)
def test_every_objective_with_soft_labels_gets_them(name):
    student, teacher = network(0), network(1)
    inputs, targets = mixed_batch(8)
    soft = targets / targets.sum(-1, keepdim=True)

    def loss(student_logits, teacher_logits):
        batch = Batch(student_logits=student_logits, teacher_logits=teacher_logits, labels=soft)
        return sum(create(name).losses(batch).values())

    expected = own_gradients(student, teacher, inputs, loss)
    DistillationTask(student, teacher, name)(inputs, targets)["loss"].backward()
    assert_gradients_close(gradients(student), expected)


def test_a_temperature_is_a_setting_for_classes_too():
    student, teacher = network(0), network(1)
    settings = {"temperature": 4.0, "beta": 1.0}
    expected = own_gradients(student, teacher, images(8), lambda z, t: tpkd_loss(z, t, labels(8), **settings))
    DistillationTask(student, teacher, settings=settings)(images(8), labels(8))["loss"].backward()
    assert_gradients_close(gradients(student), expected)


def margins_after(task, states, targets, step):
    """The margin of every class that the label allows (rows) to every one that it does not, after a step."""
    for parameter in task.parameters():
        parameter.grad = None
    task(torch.zeros(len(states), 3, 1, 1), targets)["loss"].backward()
    return pairwise(states - step * len(states) * task.trainable_module.logits.grad, targets)


def pairwise(logits, targets):
    allowed = (targets > 0).unsqueeze(-1) & (targets == 0).unsqueeze(-2)
    return (logits.unsqueeze(-1) - logits.unsqueeze(-2)).masked_fill(~allowed, 0.0)


@pytest.mark.parametrize("settings", [{}, {"temperature": 4.0, "beta": 1.0}], ids=["paper", "temperature"])
def test_the_set_loses_no_margin_of_the_mixup_step_and_the_sum_does_on_most_states(settings):
    """EXTENSIONS 1: no worse than the mixup step, which itself lowers some margins."""
    generator = torch.Generator().manual_seed(0)
    count, num_classes = 1000, 10
    student, teacher = 2 * torch.randn(2, count, num_classes, generator=generator, dtype=torch.float64)
    first = torch.randint(num_classes, (count,), generator=generator)
    second = (first + torch.randint(1, num_classes, (count,), generator=generator)) % num_classes
    weight = torch.rand(count, 1, generator=generator, dtype=torch.float64)
    targets = mixtures(first, second, weight, num_classes)
    ce, by_set, by_sum = (
        table_task(student, teacher, **options)
        for options in ({"objective": "ce"}, {"settings": settings}, {"settings": settings, "mixed": "sum"})
    )
    for step in (0.1, 1.0, 10.0):
        reached = margins_after(ce, student, targets, step)
        kept, summed = (margins_after(task, student, targets, step) for task in (by_set, by_sum))
        rounding = 1e-12 * step
        assert (kept >= reached - rounding).all()
        assert (kept > reached + 1e-6).flatten(1).any(-1).float().mean() > 0.9, "the teacher must have said something"
        lost = (summed < reached - 1e-9).flatten(1).any(-1).float().mean()
        assert lost > 0.5, f"{lost:.0%} of states"
        assert (kept < pairwise(student, targets) - 1e-9).any(), "or the promise could be stronger"


@pytest.mark.parametrize("mode", ["batch", "elem"])
@pytest.mark.parametrize("name", SERVED)
def test_the_sum_is_the_weighted_sum_of_two_hard_label_losses(name, mode):
    """Against a loop over images, each with two calls of the objective."""
    settings = NO_WARMUP if name == "dkd" else {}
    student, teacher = network(0), network(1)
    inputs, targets = mixed_batch(8, mode)
    first = labels(8)

    def loss(student_logits, teacher_logits):
        total = torch.zeros(())
        for row in range(8):
            logits, answers = student_logits[row : row + 1], teacher_logits[row : row + 1]
            for label in {int(first[row]), int(first[7 - row])}:
                batch = Batch(student_logits=logits, teacher_logits=answers, labels=torch.tensor([label]))
                total = total + targets[row, label] * sum(create(name, **settings).losses(batch).values()) / 8
        return total

    expected = own_gradients(student, teacher, inputs, loss)
    DistillationTask(student, teacher, name, settings=settings, mixed="sum")(inputs, targets)["loss"].backward()
    assert_gradients_close(gradients(student), expected)


@pytest.mark.parametrize("mixed", ["set", "sum"])
def test_four_mixed_micro_batches_are_one_batch(mixed):
    student, teacher = network(0), network(1)
    whole = DistillationTask(copy.deepcopy(student), teacher, mixed=mixed)
    inputs, targets = mixed_batch(64)
    whole(inputs, targets)["loss"].backward()
    task = DistillationTask(student, teacher, mixed=mixed)
    for piece, target in zip(inputs.split(16), targets.split(16), strict=True):
        (task(piece, target)["loss"] / 4).backward()
    assert_gradients_close(gradients(student), gradients(whole.trainable_module))


@pytest.mark.parametrize("mixed", ["set", "sum"])
def test_targets_of_one_label_are_that_label(mixed):
    student, teacher = network(0), network(1)
    task = DistillationTask(student, teacher, mixed=mixed)
    expected = tpkd_loss(student(images(8)), teacher(images(8)), labels(8))
    torch.testing.assert_close(task(images(8), one_hot(labels(8), CLASSES).double())["loss"], expected)
    torch.testing.assert_close(task(images(8), labels(8))["loss"], expected)


@pytest.mark.parametrize("mixed", ["set", "sum"])
def test_a_row_without_a_label_counts_for_nothing(mixed):
    task = DistillationTask(network(0), network(1), mixed=mixed)
    inputs, targets = mixed_batch(8)
    masked = targets.clone()
    masked[5:] = 0
    torch.testing.assert_close(task(inputs, masked)["loss"], task(inputs[:5], targets[:5])["loss"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_images_and_targets_in_half_precision_are_taken(dtype):
    """Networks in full precision: what is tested are targets whose sums were rounded."""
    student, teacher = (network(seed, dtype=torch.float32) for seed in (0, 1))
    task = DistillationTask(student, teacher)
    for seed in range(4):
        np.random.seed(seed)
        mixup = Mixup(mixup_alpha=0.8, mode="elem", label_smoothing=0.0, num_classes=CLASSES)
        inputs, targets = mixup(images(32, dtype=dtype), labels(32))
        for rounded in (targets, targets.to(dtype)):
            shares = rounded.double() / rounded.double().sum(-1, keepdim=True)
            expected = tpkd_loss(student(inputs.float()).double(), teacher(inputs.float()).double(), shares)
            assert task(inputs.float(), rounded)["loss"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_label_without_weight_cannot_spoil_the_loss():
    """One of two equal labels weighs nothing, and so must whatever stands at the other classes."""
    student = torch.tensor([[1.0, 0.0, -torch.inf]])
    mixed = recover_labels(torch.tensor([[1.0, 0.0, 0.0]]))
    batch = Batch(student_logits=student, labels=mixed.labels[1], reduction="none")
    assert create("ce").losses(batch)["loss"].tolist() == [0.0]


@pytest.mark.parametrize("mixed", ["set", "sum"])
@pytest.mark.parametrize("name", ["tpkd", "kd"])
def test_smoothed_labels_are_refused_by_every_objective(name, mixed):
    np.random.seed(0)
    inputs, targets = Mixup(label_smoothing=0.1, num_classes=CLASSES)(images(8), labels(8))
    with pytest.raises(InputError, match=r"row 0: .*smoothed by 0\.1,.*Mixup\(label_smoothing=0\.0\), --smoothing 0"):
        DistillationTask(network(0), network(1), name, mixed=mixed)(inputs, targets)


def test_an_objective_without_soft_labels_is_refused_as_soon_as_mixing_shows():
    student, teacher = network(0), network(1)
    options = {"objective": "dkd", "settings": NO_WARMUP}
    message = """'dkd' takes no soft labels, as those of mixup and CutMix: set mixed="sum" .*such as tpkd or kd"""
    with pytest.raises(InputError, match=f"criterion: found SoftTargetCrossEntropy: objective {message}"):
        DistillationTask(student, teacher, criterion=SoftTargetCrossEntropy(), **options)
    task = DistillationTask(student, teacher, **options)
    assert task(images(8), labels(8))["loss"] > 0
    with pytest.raises(InputError, match=message):
        task(*mixed_batch(8))
    summed = DistillationTask(student, teacher, criterion=SoftTargetCrossEntropy(), mixed="sum", **options)
    assert summed(*mixed_batch(8))["loss"] > 0


def test_a_mixture_that_leaves_one_class_is_refused_with_what_to_do():
    student, teacher = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(0))
    inputs, targets = torch.zeros(2, 3, 1, 1), torch.tensor([[1.0, 0, 0], [0.4, 0.6, 0]])
    with pytest.raises(InputError, match=r'row 1: expected at least 2 .*leaves 1 of 3: set mixed="sum"'):
        table_task(student, teacher)(inputs, targets)
    for options in ({"mixed": "sum"}, {"objective": "kd"}):
        assert table_task(student, teacher, **options)(inputs, targets)["loss"] > 0


def test_another_word_for_mixed_is_refused():
    with pytest.raises(InputError, match="mixed: expected 'set' or 'sum', got 'both'"):
        DistillationTask(network(0), network(1), mixed="both")


@pytest.mark.parametrize(("free", "expected"), [(True, 3), (False, 1)], ids=["processor", "accelerator"])
def test_targets_on_an_accelerator_are_looked_at_once(monkeypatch, free, expected):
    looks = []
    monkeypatch.setattr(drop_in, "check_targets", looks.append)
    monkeypatch.setattr(drop_in, "can_read_values", lambda tensor: free)
    task = DistillationTask(network(0), network(1))
    for _ in range(3):
        task(*mixed_batch(8))
    assert len(looks) == expected
