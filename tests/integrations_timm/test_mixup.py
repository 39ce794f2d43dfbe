"""Mixed images: both labels and their weights come back exactly, and the loss is the sum of two hard-label losses."""

import copy

import numpy as np
import pytest
import timm.data.mixup
import torch
from timm.data import FastCollateMixup, Mixup

from integrations_timm.tiny import CLASSES, assert_gradients_close, gradients, images, labels, network
from tpkd import tpkd_loss
from tpkd.errors import InputError
from tpkd.integrations.timm import DistillationTask, recover_labels
from tpkd.objectives import Batch, create, names

KINDS = {
    "mixup": {"mixup_alpha": 0.8},
    "cutmix": {"mixup_alpha": 0.0, "cutmix_alpha": 1.0},
    "either, or none": {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "prob": 0.7},
    "cutmix by size": {"mixup_alpha": 0.0, "cutmix_minmax": (0.2, 0.8)},
}


@pytest.fixture
def drawn(monkeypatch):
    """The labels and weights timm makes its targets of, as it makes them."""
    seen = []
    original = timm.data.mixup.mixup_target

    def recording(target, num_classes, lam=1.0, smoothing=0.0):
        weight = torch.as_tensor(lam, dtype=torch.float64).flatten().expand(len(target))
        seen.append((target, target.flip(0), weight))
        return original(target, num_classes, lam, smoothing)

    monkeypatch.setattr(timm.data.mixup, "mixup_target", recording)
    return seen


def assert_recovered(targets, first, second, weight):
    """The same weight on the same label, whichever of the two stands first; equal labels are one label."""
    mixed = recover_labels(targets)
    for row in range(len(targets)):
        expected = {}
        for label, share in ((int(first[row]), float(weight[row])), (int(second[row]), 1 - float(weight[row]))):
            expected[label] = expected.get(label, 0.0) + share
        found = dict(zip(mixed.labels[:, row].tolist(), mixed.weights[:, row].tolist(), strict=True))
        assert found.pop(-100, 0.0) == 0.0
        # Targets are float32; a share below that is a label the targets do not name.
        assert found == pytest.approx({label: share for label, share in expected.items() if share > 0}, abs=1e-7)
        assert next(iter(found)) == max(found, key=found.get)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
def test_labels_and_weights_come_back_from_every_kind_and_mode(drawn, kind, mode):
    np.random.seed(0)
    mixup = Mixup(**KINDS[kind], mode=mode, label_smoothing=0.0, num_classes=CLASSES)
    for seed in range(5):
        _, targets = mixup(images(32, seed=seed, dtype=torch.float32), labels(32, seed=seed))
        assert_recovered(targets, *drawn.pop())


@pytest.mark.parametrize("mode", ["batch", "pair", "elem", "half"])
def test_labels_and_weights_come_back_from_a_mixing_collator(drawn, mode):
    np.random.seed(0)
    collate = FastCollateMixup(mixup_alpha=0.8, cutmix_alpha=1.0, mode=mode, label_smoothing=0.0, num_classes=CLASSES)
    pixels = (images(32, dtype=torch.float32) * 50 + 128).clamp(0, 255).byte().numpy()
    _, targets = collate(list(zip(pixels, labels(32).tolist(), strict=True)))
    assert len(targets) == (16 if mode == "half" else 32)
    assert_recovered(targets, *drawn.pop())


def test_weights_are_the_entries_of_the_targets_bit_for_bit():
    weight = torch.rand(64, generator=torch.Generator().manual_seed(0))
    first, second = torch.zeros(64, dtype=torch.long), torch.randint(1, CLASSES, (64,))
    targets = torch.zeros(64, CLASSES)
    targets[torch.arange(64), first] = weight
    targets[torch.arange(64), second] = 1 - weight
    mixed = recover_labels(targets)
    rebuilt = torch.zeros_like(targets).scatter_(1, mixed.labels.T, mixed.weights.T)
    assert rebuilt.equal(targets)
    assert (mixed.weights[0] >= mixed.weights[1]).all()


def test_images_in_half_precision_round_the_weights_and_not_the_labels(drawn):
    np.random.seed(0)
    mixup = Mixup(mixup_alpha=0.8, mode="elem", label_smoothing=0.0, num_classes=CLASSES)
    for seed in range(20):
        _, targets = mixup(images(64, dtype=torch.bfloat16), labels(64, seed=seed))
        first, second, _ = drawn.pop()
        mixed = recover_labels(targets)
        for row in range(64):
            assert set(mixed.labels[:, row].tolist()) - {-100} <= {int(first[row]), int(second[row])}


@pytest.mark.parametrize("mode", ["batch", "elem"])
@pytest.mark.parametrize("name", [name for name in names() if name not in ("dp-u", "dp-s", "dhkd", "dto-kd")])
def test_the_loss_is_the_weighted_sum_of_two_hard_label_losses(name, mode):
    """Against a loop over images, each with two calls of the objective."""
    np.random.seed(1)
    settings = {"warmup_epochs": 0} if name == "dkd" else {}
    student, teacher = network(0), network(1)
    own = copy.deepcopy(student)
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, mode=mode, label_smoothing=0.0, num_classes=CLASSES)
    first = labels(8)
    mixed_images, targets = mixup(images(8), first)
    targets = targets.double()
    total = torch.zeros(())
    for row in range(8):
        logits, answers = own(mixed_images[row : row + 1]), teacher.eval()(mixed_images[row : row + 1])
        for label in {int(first[row]), int(first[7 - row])}:
            batch = Batch(student_logits=logits, teacher_logits=answers, labels=torch.tensor([label]))
            total = total + targets[row, label] * sum(create(name, **settings).losses(batch).values()) / 8
    total.backward()
    result = DistillationTask(student, teacher, name, settings=settings)(mixed_images, targets)
    result["loss"].backward()
    assert result["loss"].item() == pytest.approx(total.item(), rel=1e-12)
    assert_gradients_close(gradients(student), gradients(own))


def test_four_mixed_micro_batches_are_one_batch():
    np.random.seed(2)
    student, teacher = network(0), network(1)
    whole = DistillationTask(copy.deepcopy(student), teacher)
    inputs, targets = Mixup(mode="elem", label_smoothing=0.0, num_classes=CLASSES)(images(64), labels(64))
    whole(inputs, targets)["loss"].backward()
    task = DistillationTask(student, teacher)
    for piece, target in zip(inputs.split(16), targets.split(16), strict=True):
        (task(piece, target)["loss"] / 4).backward()
    assert_gradients_close(gradients(student), gradients(whole.trainable_module))


def test_targets_of_one_label_are_that_label():
    student, teacher = network(0), network(1)
    task = DistillationTask(student, teacher)
    one_hot = torch.nn.functional.one_hot(labels(8), CLASSES).double()
    expected = tpkd_loss(student(images(8)), teacher(images(8)), labels(8))
    torch.testing.assert_close(task(images(8), one_hot)["loss"], expected)
    torch.testing.assert_close(task(images(8), labels(8))["loss"], expected)


def test_a_label_without_weight_cannot_spoil_the_loss():
    """One of two equal labels weighs nothing, and so must whatever stands at the other classes."""
    student = torch.tensor([[1.0, 0.0, -torch.inf]])
    mixed = recover_labels(torch.tensor([[1.0, 0.0, 0.0]]))
    batch = Batch(student_logits=student, labels=mixed.labels[1], reduction="none")
    assert create("ce").losses(batch)["loss"].tolist() == [0.0]


@pytest.mark.parametrize("mode", ["batch", "elem"])
def test_smoothed_labels_are_refused_with_what_to_do(mode):
    np.random.seed(0)
    inputs, targets = Mixup(mode=mode, label_smoothing=0.1, num_classes=CLASSES)(images(8), labels(8))
    with pytest.raises(InputError, match=r"row 0: .*smoothed by 0\.1,.*Mixup\(label_smoothing=0\.0\), --smoothing 0"):
        DistillationTask(network(0), network(1))(inputs, targets)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.tensor([[1.0, 0, 0, 0], [0.5, 0.3, 0.2, 0]]), "targets: row 1: .*got 3 entries with sum 1:"),
        (torch.tensor([[0.4, 0.3, 0.2, 0.1]]), "targets: row 0: .*got 4 entries with sum 1:"),
        (torch.tensor([[1.0, 1.0, 0, 0]]), "targets: row 0: .*got 2 entries with sum 2:"),
        (torch.tensor([[1.5, -0.5, 0, 0]]), "targets: row 0: .*got 2 entries with sum 1:"),
        (torch.tensor([[1.0, 0, 0, 0], [torch.nan, 0, 0, 0]]), "targets: row 1: .*with sum nan:"),
        (torch.tensor([[1, 0, 0, 0]]), r"targets: expected classes .*got torch.int64 of shape \(1, 4\)"),
        (torch.tensor([[[1.0, 0, 0]]]), r"targets: expected classes .*got torch.float32 of shape \(1, 1, 3\)"),
    ],
)
def test_what_is_no_mixture_of_two_labels_is_refused(targets, message):
    with pytest.raises(InputError, match=message):
        recover_labels(targets)
