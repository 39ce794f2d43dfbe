import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tpkd.data.batches import Preparation
from tpkd.data.loading import load_dataset
from tpkd.data.views import DIGITS_VIEWS
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.training.evaluation import evaluate
from tpkd.training.run import start_accelerator
from training.tiny import make_config


@pytest.fixture(scope="module")
def accelerator(tmp_path_factory):
    return start_accelerator(make_config(tmp_path_factory.mktemp("evaluation")))


def in_batches(size):
    return SimpleNamespace(evaluation=SimpleNamespace(batch_size=size), workers=0)


@pytest.fixture
def student():
    return build_model(
        ModelSpec("builtin:mlp", num_classes=10, options={"input_size": 64, "hidden": [16], "dropout": 0.5})
    )


DIGITS = load_dataset("digits", "test")
PREPARATION = Preparation(DIGITS_VIEWS)


def test_every_sample_counts_once_whatever_the_batch_size(accelerator, student):
    found = [evaluate(student, DIGITS, PREPARATION, accelerator, in_batches(size)) for size in (719, 100, 1)]
    logits = student.eval()(PREPARATION.inputs(DIGITS, np.arange(len(DIGITS)))).detach()
    for each in found:
        torch.testing.assert_close(each.logits, logits, rtol=0, atol=1e-5)
        assert each.accuracy == pytest.approx((logits.argmax(-1).numpy() == DIGITS.labels).mean())
        log_probabilities = logits.double().log_softmax(-1)[np.arange(719), DIGITS.labels]
        assert each.label_loss == pytest.approx(-log_probabilities.mean().item(), rel=1e-6)
        assert each.sample_ids.tolist() == DIGITS.ids.tolist()


def test_accuracy_counts_samples_and_not_classes(accelerator, student):
    few = DIGITS.subset(np.flatnonzero(DIGITS.labels == 3)[:5])
    with torch.no_grad():
        student.classifier.weight.zero_()
        student.classifier.bias.copy_(torch.eye(10)[3])
    assert evaluate(student, few, PREPARATION, accelerator, in_batches(2)).accuracy == 1.0
    assert evaluate(student, DIGITS, PREPARATION, accelerator, in_batches(64)).accuracy == pytest.approx(
        (DIGITS.labels == 3).mean()
    )


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_student_is_put_back_and_dropout_sleeps(accelerator, student, training):
    student.train(training)
    first, second = (evaluate(student, DIGITS, PREPARATION, accelerator, in_batches(64)) for _ in range(2))
    assert torch.equal(first.logits, second.logits)
    assert student.training is training
    assert not first.logits.requires_grad


def test_what_is_published_is_what_diagnose_takes(accelerator, student, tmp_path):
    found = evaluate(student, DIGITS, PREPARATION, accelerator, in_batches(64))
    found.publish(tmp_path / "test.safetensors", ("a", "b", "c"))
    saved = load_file(tmp_path / "test.safetensors")
    assert saved.keys() == {"logits", "labels", "sample_ids"}
    assert torch.equal(saved["logits"], found.logits)


def test_an_evaluation_is_frozen(accelerator, student):
    found = evaluate(student, DIGITS, PREPARATION, accelerator, in_batches(64))
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.accuracy = 1.0
