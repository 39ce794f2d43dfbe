"""Every objective says how few classes it takes, and takes no fewer."""

import pytest
import torch

from tpkd.objectives import Batch, create, names
from tpkd.objectives.base import LOOP_NEEDS

OTHERS = {"dhkd", "dto-kd"}  # heads and layers of their own, of any number of classes


@pytest.mark.parametrize("name", [name for name in names() if name not in OTHERS])
def test_an_objective_takes_as_few_classes_as_it_says_and_no_fewer(name):
    objective = create(name)
    assert not objective.needs & LOOP_NEEDS

    def losses(num_classes):
        logits = torch.randn(3, 4, num_classes, generator=torch.Generator().manual_seed(0))
        labels = torch.arange(4) % num_classes
        given = dict(zip(("student_logits", "teacher_logits", "initial_logits"), logits, strict=True))
        return objective.losses(Batch(**given, labels=labels, epoch=1))

    assert all(value.isfinite() for value in losses(objective.min_classes).values())
    with pytest.raises(ValueError, match=f"expected at least {objective.min_classes} classes"):
        losses(objective.min_classes - 1)
