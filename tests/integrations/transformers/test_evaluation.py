"""Evaluation is the student's alone, and the monitor speaks through the Trainer's own log."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from integrations.transformers.tiny import CLASSES, collate, text_model, texts, token_model, tokens, trainer_for
from tpkd.errors import InputError
from tpkd.integrations.transformers import MonitorCallback
from tpkd.theory import diagnose

MONITORED = ("blocked_share", "conditional_loss", "compensation", "retention")


def test_evaluation_gives_cross_entropy_predictions_and_metrics(tmp_path):
    student, data = text_model(0), texts(40, seed=3)
    trainer = trainer_for(
        tmp_path,
        student,
        texts(),
        teacher=text_model(1),
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
    )
    metrics = trainer.evaluate(data)
    batch = collate(data)
    with torch.no_grad():
        logits = student.eval()(input_ids=batch["input_ids"]).logits
    assert metrics["eval_loss"] == pytest.approx(functional.cross_entropy(logits, batch["labels"]).item(), rel=1e-5)
    assert metrics["eval_accuracy"] == pytest.approx((logits.argmax(-1) == batch["labels"]).float().mean().item())
    predicted = trainer.predict(data)
    np.testing.assert_allclose(predicted.predictions, logits, atol=1e-6)
    assert trainer.objective.name == "tpkd"


def test_evaluation_leaves_out_ignored_tokens(tmp_path):
    student, data = token_model(0), tokens(16, ignored=0.5)
    metrics = trainer_for(tmp_path, student, tokens(), teacher=token_model(1)).evaluate(data)
    batch = collate(data)
    logits = student.eval()(input_ids=batch["input_ids"]).logits
    expected = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten()).item()
    assert metrics["eval_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("objective", ["tpkd", "ce"])
def test_the_monitor_logs_the_means_of_a_diagnosis_over_all_micro_batches(tmp_path, objective):
    student, teacher, data = token_model(0), token_model(1), tokens(ignored=0.3)
    batch = collate(data)
    valid = batch["labels"] != -100
    logits, teacher_logits = (model.eval()(input_ids=batch["input_ids"]).logits[valid] for model in (student, teacher))
    expected = diagnose(logits, teacher_logits, batch["labels"][valid]).summary()
    assert 0 < expected["blocked_share"] < 1
    trainer = trainer_for(
        tmp_path,
        student,
        data,
        teacher=teacher,
        objective=objective,
        callbacks=[MonitorCallback()],
        arguments_={"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4},
    )
    trainer.train()
    entry = trainer.state.log_history[0]
    assert all(type(entry[name]) is float for name in MONITORED)
    assert entry["blocked_share"] == pytest.approx(expected["blocked_share"], rel=1e-5)
    for name in MONITORED[1:]:
        assert entry[name] == pytest.approx(expected["all"][name], rel=1e-4)


def test_the_monitor_looks_at_one_step_in_so_many_and_never_at_an_evaluation(tmp_path):
    trainer = trainer_for(
        tmp_path,
        text_model(0),
        texts(),
        eval_dataset=texts(seed=1),
        teacher=text_model(1),
        callbacks=[MonitorCallback(every=2)],
        arguments_={"max_steps": 4, "per_device_train_batch_size": 16, "eval_strategy": "steps", "eval_steps": 1},
    )
    trainer.train()
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert ["blocked_share" in entry for entry in entries] == [False, True, False, True]
    evaluations = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(evaluations) == 4
    assert not any("blocked_share" in entry for entry in evaluations)


def test_a_monitor_without_a_teacher_and_a_rhythm_of_nothing_are_refused(tmp_path):
    with pytest.raises(InputError, match="because MonitorCallback compares with it"):
        trainer_for(tmp_path, text_model(0), texts(), objective="ce", callbacks=[MonitorCallback()])
    trainer = trainer_for(tmp_path, text_model(0), texts(), objective="ce")
    trainer.add_callback(MonitorCallback())
    with pytest.raises(InputError, match="because MonitorCallback compares with it"):
        trainer.train()
    with pytest.raises(ValueError, match="every: expected at least 1, got 0"):
        MonitorCallback(every=0)


def test_labels_alone_need_no_teacher(tmp_path):
    trainer = trainer_for(tmp_path, text_model(0), texts(), objective="ce")
    batch = collate(texts())
    logits = text_model(0)(input_ids=batch["input_ids"]).logits
    assert logits.shape == (64, CLASSES)
    torch.testing.assert_close(
        trainer.compute_loss(trainer.model, batch), functional.cross_entropy(logits, batch["labels"])
    )
