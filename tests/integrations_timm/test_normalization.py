"""The teacher sees the image as it expects it, whatever the student expects."""

import pytest
import torch
from timm.task import DistillationTeacher, LogitDistillationTask
from torch import nn

from integrations_timm.tiny import CLASSES, images, labels, network
from tpkd.errors import InputError
from tpkd.integrations.timm import DistillationTask

HALF = (0.5, 0.5, 0.5)
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Recorder(nn.Module):
    """A network that keeps what it was shown."""

    def __init__(self, statistics=None, channels=3):
        super().__init__()
        self.head = nn.Linear(channels, CLASSES, dtype=torch.float64)
        self.seen = None
        if statistics is not None:
            self.pretrained_cfg = {"mean": statistics[0], "std": statistics[1]}

    def forward(self, inputs):
        self.seen = inputs
        return self.head(inputs.mean((-2, -1)))


def pixels(channels=3):
    return torch.rand(4, channels, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def normalised(raw, mean, std):
    return (raw - torch.tensor(mean, dtype=raw.dtype).view(-1, 1, 1)) / torch.tensor(std, dtype=raw.dtype).view(
        -1, 1, 1
    )


def shown(teacher, inputs, **statistics):
    """What the teacher sees beside a student that expects 0.5 and 0.5."""
    DistillationTask(Recorder((HALF, HALF), channels=inputs.shape[1]), teacher, **statistics)(inputs, labels(4))
    return getattr(teacher, "model", teacher).seen


def test_a_teacher_with_other_statistics_sees_the_image_in_its_own():
    seen = shown(Recorder(IMAGENET), normalised(pixels(), HALF, HALF))
    torch.testing.assert_close(seen, normalised(pixels(), *IMAGENET))


def test_a_teacher_with_the_same_statistics_sees_the_very_tensor():
    inputs = normalised(pixels(), HALF, HALF)
    assert shown(Recorder((HALF, HALF)), inputs) is inputs
    assert shown(DistillationTeacher(Recorder((HALF, HALF))), inputs) is inputs


def test_what_the_loader_really_does_may_be_said():
    mine = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    inputs = normalised(pixels(), *mine)
    seen = shown(Recorder(IMAGENET), inputs, mean=mine[0], std=mine[1])
    torch.testing.assert_close(seen, normalised(pixels(), *IMAGENET))
    seen = shown(Recorder(IMAGENET), inputs, mean=mine[0], std=mine[1], teacher_mean=(0.0,), teacher_std=(1.0,))
    torch.testing.assert_close(seen, pixels())
    half = shown(Recorder(IMAGENET), inputs, mean=mine[0], std=mine[1], teacher_mean=(0.5,))
    torch.testing.assert_close(half, normalised(pixels(), HALF, IMAGENET[1]))
    same = dict(zip(("mean", "std", "teacher_mean", "teacher_std"), mine * 2, strict=True))
    assert shown(Recorder(IMAGENET), inputs, **same) is inputs


def test_it_agrees_with_timms_own_teacher():
    student, teacher = network(0), network(1, name="test_efficientnet_ln")
    assert student.pretrained_cfg["mean"] != teacher.pretrained_cfg["mean"]
    wrapped = DistillationTeacher(teacher)
    theirs = LogitDistillationTask(student, wrapped, dtype=torch.float64, verbose=False)
    expected = wrapped(wrapped.normalize_input(images(4), theirs.student_mean, theirs.student_std))
    for given in (teacher, wrapped):
        found = DistillationTask(student, given)(images(4), labels(4))["teacher_output"]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)  # timm keeps its statistics in float32
    assert not torch.allclose(teacher(images(4)), expected, atol=1e-2)


def test_images_of_one_channel_need_statistics_of_one_channel():
    grey = normalised(pixels(1), (0.5,), (0.5,))
    with pytest.raises(InputError, match="mean, std: expected one number per channel of the images, 1, got 3"):
        shown(Recorder(IMAGENET, channels=1), grey)
    given = {"mean": (0.5,), "std": (0.5,), "teacher_mean": (0.1,), "teacher_std": (0.3,)}
    seen = shown(Recorder(IMAGENET, channels=1), grey, **given)
    torch.testing.assert_close(seen, normalised(pixels(1), (0.1,), (0.3,)))


def test_a_network_that_says_nothing_of_its_images_must_be_spoken_for():
    with pytest.raises(InputError, match=r"teacher_mean: expected .* because Recorder has no pretrained_cfg"):
        DistillationTask(Recorder((HALF, HALF)), Recorder())
    with pytest.raises(InputError, match=r"std: expected .* because Recorder has no pretrained_cfg"):
        DistillationTask(Recorder(), Recorder(IMAGENET), mean=HALF)
    DistillationTask(Recorder((HALF, HALF)), Recorder(), teacher_mean=HALF, teacher_std=HALF)


def test_the_log_says_how_the_teacher_sees_the_images(caplog):
    caplog.set_level("INFO")
    plain = torch.nn.CrossEntropyLoss()
    DistillationTask(Recorder((HALF, HALF)), Recorder(IMAGENET), criterion=plain)
    DistillationTask(Recorder((HALF, HALF)), Recorder((HALF, HALF)), "kd", criterion=plain)
    DistillationTask(Recorder((HALF, HALF)), Recorder(IMAGENET), verbose=False)
    first, second = caplog.messages
    assert first == "DistillationTask: objective=TPKD(beta=0.5, temperature=1.0), images renormalised for the teacher"
    assert second.startswith("DistillationTask: objective=KD(")
    assert second.endswith("images the same for student and teacher")
