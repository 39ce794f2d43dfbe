"""What timm's script would have trained with: a loss that the objective replaces, or one it would drop silently."""

import logging
from functools import partial

import pytest
import torch
from timm.loss import (
    AsymmetricLossMultiLabel,
    BinaryCrossEntropy,
    JsdCrossEntropy,
    LabelSmoothingCrossEntropy,
    SoftTargetCrossEntropy,
)
from torch import nn
from torch.nn import functional

from integrations_timm.tiny import CLASSES, images, labels, network
from tpkd.errors import InputError
from tpkd.integrations.timm import DistillationTask


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        (
            LabelSmoothingCrossEntropy(0.1),
            "criterion: expected cross-entropy, found labels smoothed by 0.1.*--smoothing 0",
        ),
        (nn.CrossEntropyLoss(label_smoothing=0.2), "found labels smoothed by 0.2.*--smoothing 0"),
        (BinaryCrossEntropy(), "found BinaryCrossEntropy.*leave out --bce-loss"),
        (BinaryCrossEntropy(smoothing=0.0), "found BinaryCrossEntropy.*leave out --bce-loss"),
        (JsdCrossEntropy(), "found JsdCrossEntropy.*leave out --jsd-loss"),
        (nn.CrossEntropyLoss(weight=torch.ones(CLASSES)), "found weights of classes"),
        (nn.CrossEntropyLoss(ignore_index=0), "found ignore_index=0"),
        (nn.CrossEntropyLoss(reduction="sum"), "found reduction='sum'"),
        (AsymmetricLossMultiLabel(), "found AsymmetricLossMultiLabel, .*write it as an Objective"),
        (partial(functional.cross_entropy, label_smoothing=0.1), "found partial, .*write it as an Objective"),
        (lambda output, target: output.sum(), "found <lambda>, .*write it as an Objective"),
    ],
)
def test_a_loss_that_the_objective_would_drop_is_refused_at_construction(criterion, message):
    with pytest.raises(InputError, match=message):
        DistillationTask(network(0), network(1), "tpkd", criterion=criterion)


@pytest.mark.parametrize(
    "criterion",
    [
        nn.CrossEntropyLoss(),
        SoftTargetCrossEntropy(),  # of mixup, which smooths in its targets: those are seen
        LabelSmoothingCrossEntropy(0.0),
        functional.cross_entropy,
    ],
)
def test_cross_entropy_is_a_part_of_the_objective(criterion):
    task = DistillationTask(network(0), network(1), "tpkd", criterion=criterion)
    assert task(images(4), labels(4))["loss"] > 0
    assert "criterion" not in dict(task.named_modules())


def test_a_criterion_in_the_place_of_the_objective_is_named():
    """There timm's own distillation tasks have it."""
    with pytest.raises(InputError, match=r"objective: expected a name .*, found CrossEntropyLoss: .*criterion="):
        DistillationTask(network(0), network(1), nn.CrossEntropyLoss())


def test_a_task_without_a_criterion_says_what_it_cannot_see(caplog):
    with caplog.at_level(logging.INFO, logger="tpkd"):
        DistillationTask(network(0), network(1), criterion=nn.CrossEntropyLoss())
        assert "criterion" not in caplog.text
        DistillationTask(network(0), network(1))
    assert "label smoothing or another loss of the script would be dropped: pass criterion=" in caplog.text
