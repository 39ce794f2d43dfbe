"""The classes of teacher and student: enough of them for the objective, and the same ones in the same order."""

import pytest
import timm

from integrations_timm.tiny import CLASSES, NETWORK, network
from tpkd.errors import InputError
from tpkd.integrations.timm import DistillationTask

NAMES = ("ant", "bee", "cat", "dog", "elk", "fox")


def named(seed, names, key="label_names"):
    model = network(seed)
    model.pretrained_cfg = {**model.pretrained_cfg, key: list(names)}
    return model


@pytest.mark.parametrize("objective", ["tpkd", "safe-full-kl"])
def test_two_classes_are_refused_at_construction_with_the_way_out(objective):
    student, teacher = (timm.create_model(NETWORK, num_classes=2) for _ in range(2))
    with pytest.raises(
        InputError, match=f"objective '{objective}' needs at least 3 classes, found 2: .*objective=\"kd\""
    ):
        DistillationTask(student, teacher, objective)
    assert DistillationTask(student, teacher, "kd").objective.name == "kd"


def test_another_order_of_names_is_refused():
    assert DistillationTask(named(0, NAMES), named(1, NAMES))
    with pytest.raises(InputError, match=r"'ant'.*'bee'"):
        DistillationTask(named(0, NAMES), named(1, ("bee", "ant", *NAMES[2:])))


def test_names_of_the_classes_before_fine_tuning_say_nothing():
    """A configuration keeps the names of what the weights were trained on, whatever head the network has now."""
    assert len(NAMES) == CLASSES
    assert DistillationTask(named(0, NAMES), named(1, ("yes", "no", "maybe")))
