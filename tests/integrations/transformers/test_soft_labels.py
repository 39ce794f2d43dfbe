"""Labels that are probabilities: the gradient of our own loop, however the batch is cut, and refusals by name."""

import copy

import pytest
import torch
from torch.nn import functional

from integrations.transformers.tiny import (
    CLASSES,
    assert_close,
    collate,
    first_gradients,
    image_model,
    images,
    softened,
    text_model,
    texts,
    token_model,
    tokens,
    trainer_for,
)
from tpkd import tpkd_loss
from tpkd.errors import InputError
from tpkd.integrations.transformers import MonitorCallback
from tpkd.objectives import create
from tpkd.theory import diagnose

SETTINGS = {"temperature": 4.0, "beta": 1.0}


def own_gradients(student, teacher, data, **settings):
    """Plain PyTorch: positions as rows, one backward."""
    student, batch = copy.deepcopy(student).train(), collate(data)
    labels = batch.pop("labels")
    with torch.no_grad():
        teacher_logits = teacher.eval()(**batch).logits
    rows = (each.reshape(-1, CLASSES) for each in (student(**batch).logits, teacher_logits))
    labels = labels.reshape(-1, CLASSES) if labels.is_floating_point() else labels
    tpkd_loss(*rows, labels, **settings).backward()
    return {name: each.grad for name, each in student.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize("ignored", [0.0, 0.4])
def test_mixed_texts_give_the_gradient_of_one_loss_however_they_are_cut(tmp_path, ignored, pieces):
    data, student, teacher = softened(texts(), ignored=ignored), text_model(0).double(), text_model(1).double()
    found = first_gradients(
        tmp_path,
        copy.deepcopy(student),
        data,
        teacher=teacher,
        arguments_={"per_device_train_batch_size": 64 // pieces, "gradient_accumulation_steps": pieces},
    )
    assert_close(found, own_gradients(student, teacher, data), 1e-13)
    assert all(sample["labels"].any() for sample in data) == (ignored == 0)


def test_a_label_per_token_may_be_soft_and_ignored(tmp_path):
    data = softened(tokens(ignored=0.0), ignored=0.4)
    student, teacher = token_model(0).double(), token_model(1).double()
    cut = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}
    found = first_gradients(tmp_path, copy.deepcopy(student), data, teacher=teacher, arguments_=cut)
    assert_close(found, own_gradients(student, teacher, data), 1e-13)


@pytest.mark.parametrize("data", [texts(), softened(texts())], ids=["classes", "soft"])
def test_a_temperature_is_a_setting(tmp_path, data):
    student, teacher = text_model(0).double(), text_model(1).double()
    options = {"teacher": teacher, "objective_settings": SETTINGS}
    found = first_gradients(tmp_path, copy.deepcopy(student), data, **options)
    assert_close(found, own_gradients(student, teacher, data, **SETTINGS), 1e-13)


class Mixing:
    """A collator that mixes every image with the one at the other end of the batch."""

    def __init__(self):
        self.batches = []

    def __call__(self, samples):
        batch = collate(samples)
        classes = functional.one_hot(batch["labels"], CLASSES).float()
        pixels = 0.7 * batch["pixel_values"] + 0.3 * batch["pixel_values"].flip(0)
        self.batches.append({"pixel_values": pixels, "labels": 0.7 * classes + 0.3 * classes.flip(0)})
        return self.batches[-1]


def test_a_mixing_collator_is_all_it_takes(tmp_path):
    mixing, student, teacher = Mixing(), image_model(0), image_model(1).eval()
    own = copy.deepcopy(student).train()
    options = {"teacher": teacher, "data_collator": mixing, "arguments_": {"remove_unused_columns": False}}
    found = first_gradients(tmp_path, student, images(), **options)
    batch = mixing.batches[0]
    logits = own(pixel_values=batch["pixel_values"]).logits
    tpkd_loss(logits, teacher(pixel_values=batch["pixel_values"]).logits, batch["labels"]).backward()
    assert_close(found, {name: each.grad for name, each in own.named_parameters()}, 1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_rounded_in_half_precision_are_taken(tmp_path, dtype):
    data = [sample | {"labels": sample["labels"].to(dtype)} for sample in softened(texts())]
    assert collate(data)["labels"].double().sum(-1).sub(1).abs().max() > 1e-4
    student, teacher = text_model(0), text_model(1).eval()
    found = first_gradients(tmp_path, copy.deepcopy(student), data, teacher=teacher)
    shares = collate(data)["labels"].float()
    exact = [sample | {"labels": row} for sample, row in zip(data, shares / shares.sum(-1, keepdim=True), strict=True)]
    assert_close(found, own_gradients(student, teacher, exact), 1e-5)


def test_evaluation_is_the_soft_cross_entropy(tmp_path):
    student, data = text_model(0), softened(texts(32), ignored=0.4)
    arguments = {"per_device_eval_batch_size": 32}
    trainer = trainer_for(tmp_path, student, data, teacher=text_model(1), arguments_=arguments)
    batch = collate(data)
    valid = batch["labels"].sum(-1) > 0
    logits = student.eval()(input_ids=batch["input_ids"]).logits.double()
    expected = functional.cross_entropy(logits[valid], batch["labels"][valid]).item()
    assert trainer.evaluate(data)["eval_loss"] == pytest.approx(expected, rel=1e-5)


def test_the_monitor_sees_sets(tmp_path):
    student, teacher, data = text_model(0), text_model(1), softened(texts(), ignored=0.4)
    batch = collate(data)
    valid = batch["labels"].sum(-1) > 0
    logits, answers = (model.eval()(input_ids=batch["input_ids"]).logits[valid] for model in (student, teacher))
    expected = diagnose(logits, answers, batch["labels"][valid]).summary()
    cut = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}
    options = {"teacher": teacher, "callbacks": [MonitorCallback()], "arguments_": cut}
    trainer = trainer_for(tmp_path, student, data, **options)
    trainer.train()
    entry = trainer.state.log_history[0]
    assert entry["blocked_share"] == pytest.approx(expected["blocked_share"], rel=1e-5)
    for name in ("conditional_loss", "label_loss", "compensation", "retention", "confidence"):
        assert entry[name] == pytest.approx(expected["all"][name], rel=1e-4)


def labelled(labels):
    return [sample | {"labels": labels.clone()} for sample in texts()]


@pytest.mark.parametrize(
    ("data", "objective", "message"),
    [
        (labelled(torch.tensor(0.5)), "tpkd", r"expected the shape of the logits \(64, 5\) .*got .*of shape \(64,\)"),
        (labelled(torch.tensor([1.0, 1, 0, 0, 0])), "kd", "expected probabilities.*sum 2 at row 0"),
        (labelled(torch.tensor([2.0, -1, 0, 0, 0])), "kd", "expected probabilities.*least entry -1 and sum 1"),
        (labelled(torch.tensor([0.8, 0.2, 0])), "tpkd", r"expected the shape of the logits \(64, 5\)"),
        (labelled(torch.full((CLASSES,), 1 / CLASSES)), "tpkd", "got 0 at row 0; label smoothing gives every class"),
        (softened(texts()), "dkd", "objective 'dkd' takes integer classes, .*use ce, kd, kl-dist, xe-kl or tpkd"),
    ],
    ids=["regression", "several labels", "negative", "other classes", "smoothed", "dkd"],
)
def test_what_is_no_probability_and_who_takes_none_are_named(tmp_path, data, objective, message):
    with pytest.raises(ValueError, match=f"labels: .*{message}"):
        trainer_for(tmp_path, text_model(0), data, teacher=text_model(1), objective=objective).train()


def test_smoothed_labels_are_probabilities_to_who_compares_all_classes(tmp_path):
    data = labelled(torch.tensor([0.6, 0.1, 0.1, 0.1, 0.1]))
    trainer = trainer_for(tmp_path, text_model(0), data, teacher=text_model(1), objective="kd")
    found = trainer.compute_loss(trainer.model, collate(data)).item()
    batch = collate(data)
    logits, answers = (model.eval()(input_ids=batch["input_ids"]).logits for model in (trainer.model, text_model(1)))
    assert found == pytest.approx(create("kd")(logits, answers, batch["labels"]).item(), rel=1e-5)


@pytest.mark.parametrize("kind", ["regression", "multi_label_classification"])
def test_a_model_of_other_problems_is_refused_at_construction(tmp_path, kind):
    student = text_model(0, problem_type=kind)
    message = f"problem_type: expected 'single_label_classification', got '{kind}': .*or probabilities that sum to one"
    with pytest.raises(InputError, match=message):
        trainer_for(tmp_path, student, softened(texts()), teacher=text_model(1))
