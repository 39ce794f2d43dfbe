"""What timm makes of mixed labels: labels and weights come back exactly, and what is no mixture is refused."""

import numpy as np
import pytest
import timm.data.mixup
import torch
from timm.data import FastCollateMixup, Mixup

from integrations_timm.tiny import CLASSES, images, labels
from tpkd.errors import InputError
from tpkd.integrations.timm_targets import as_soft_labels, check_targets, recover_labels

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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("mode", ["batch", "elem"])
def test_sums_that_the_precision_of_the_images_rounded_are_one_again(mode, dtype):
    np.random.seed(0)
    mixup, off = Mixup(mixup_alpha=0.8, mode=mode, label_smoothing=0.0, num_classes=CLASSES), 0.0
    for seed in range(20):
        _, targets = mixup(images(64, dtype=dtype), labels(64, seed=seed))
        check_targets(targets)
        found = as_soft_labels(targets)
        assert found.dtype is torch.float32
        torch.testing.assert_close(found.sum(-1), torch.ones(64), rtol=0, atol=1e-6)
        torch.testing.assert_close(found, targets.float(), rtol=0, atol=4e-3)
        assert (found > 0).equal(targets > 0)
        off = max(off, float((targets.sum(-1) - 1).abs().max()))
    assert (off > 1e-4) == (mode == "elem" and dtype is not torch.float32), "what a loss would refuse"


def test_targets_in_half_precision_are_probabilities_too():
    for dtype in (torch.bfloat16, torch.float16):
        targets = torch.tensor([[0.3, 0.7, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]], dtype=dtype)
        check_targets(targets)
        sums = as_soft_labels(targets).sum(-1)
        torch.testing.assert_close(sums, torch.tensor([1.0, 0.0, 1.0]))


def test_labels_of_an_ignored_row_are_ignored():
    mixed = recover_labels(torch.tensor([[0.0, 0, 0, 0], [0.0, 1, 0, 0]]))
    assert mixed.labels.tolist() == [[-100, 1], [-100, -100]]


@pytest.mark.parametrize("mode", ["batch", "elem"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_smoothed_targets_are_refused_with_what_to_do(mode, dtype):
    np.random.seed(0)
    _, targets = Mixup(mode=mode, label_smoothing=0.1, num_classes=CLASSES)(images(8, dtype=dtype), labels(8))
    with pytest.raises(InputError, match=r"row 0: .*smoothed by 0\.1,.*Mixup\(label_smoothing=0\.0\), --smoothing 0"):
        check_targets(targets)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.tensor([[1.0, 1.0, 0, 0]]), "targets: row 0: .*got 2 entries with sum 2:"),
        (torch.tensor([[1.0, 0, 0, 0], [1.5, -0.5, 0, 0]]), "targets: row 1: .*got 2 entries with sum 1:"),
        (torch.tensor([[0.5, 0.48, 0, 0]]), "targets: row 0: .*got 2 entries with sum 0.98:"),
        (torch.tensor([[1.0, 0, 0, 0], [torch.nan, 0, 0, 0]]), "targets: row 1: .*with sum nan:"),
        (torch.tensor([[1, 0, 0, 0]]), r"targets: expected classes .*got torch.int64 of shape \(1, 4\)"),
        (torch.tensor([[[1.0, 0, 0]]]), r"targets: expected classes .*got torch.float32 of shape \(1, 1, 3\)"),
    ],
)
def test_what_is_no_mixture_is_refused(targets, message):
    for check in (check_targets, recover_labels):
        with pytest.raises(InputError, match=message):
            check(targets)


def test_more_than_two_labels_are_a_set_and_not_a_sum():
    for row in ([0.5, 0.3, 0.2, 0, 0], [0.4, 0.3, 0.15, 0.1, 0.05]):
        targets = torch.tensor([[1.0, 0, 0, 0, 0], row])
        check_targets(targets)
        several = sum(share > 0 for share in row)
        with pytest.raises(InputError, match=f'targets: row 1: .*got {several} entries: use mixed="set"'):
            recover_labels(targets)
