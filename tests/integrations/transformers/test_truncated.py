"""A cache that kept the largest classes alone: passed on to who takes it, refused at construction by who does not."""

import numpy as np
import pytest
import torch

from integrations.transformers.tiny import (
    CLASSES,
    assert_close,
    collate,
    first_gradients,
    softened,
    text_model,
    texts,
    trainer_for,
)
from tpkd.errors import InputError
from tpkd.integrations.transformers import MonitorCallback
from tpkd.objectives import create, top_k_tpkd_loss
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows
from tpkd.theory import diagnose

CUT = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}


@pytest.fixture(scope="module")
def truncated(tmp_path_factory):
    """The directory of a cache of the two largest of five classes, and its data."""
    data = texts(ids=True)
    batch = collate(data)
    with torch.no_grad():
        logits = text_model(1).eval()(input_ids=batch["input_ids"]).logits
    rows = CacheRows(
        batch["sample_id"].numpy(), np.zeros(64, int), lambda start, stop: logits[start:stop], batch["labels"].numpy()
    )
    directory = tmp_path_factory.mktemp("truncated") / "cache"
    recipe = CacheRecipe("weights", "data", {}, None, CLASSES, top_k=2)
    build_cache(directory, rows, lambda rows: {"logits": rows}, recipe)
    return directory, data


@pytest.mark.parametrize("settings", [{}, {"temperature": 4.0, "beta": 1.0}], ids=["paper", "temperature"])
def test_its_gradient_is_that_of_the_loss_of_truncated_teachers(tmp_path, truncated, settings):
    directory, data = truncated
    options = {"teacher": directory, "objective_settings": settings, "arguments_": CUT}
    found = first_gradients(tmp_path, text_model(0), data, **options)
    student, batch = text_model(0).train(), collate(data)
    kept = open_cache(directory).read(batch["sample_id"])
    others = {"label_log_probs": kept.label_log_probs, "rest_log_probs": kept.rest_log_probs}
    logits = student(input_ids=batch["input_ids"]).logits
    top_k_tpkd_loss(logits, kept.log_probs, kept.indices, batch["labels"], **others, **settings).backward()
    expected = {name: each.grad for name, each in student.named_parameters() if each.grad is not None}
    assert_close(found, expected, 1e-6)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("kd", {}, "needs all classes, found a cache that kept the 2 largest of each row: set temperature=1"),
        ("dkd", {}, "needs all classes, .*: build it without top_k, or use an objective that takes it, such as tpkd"),
        ("kl-dist", {}, "needs all classes"),
        ("safe-full-kl", {}, "needs all classes"),
    ],
)
def test_who_needs_all_classes_refuses_it_at_construction(tmp_path, truncated, name, settings, message):
    directory, data = truncated
    options = {"objective": name, "objective_settings": settings}
    with pytest.raises(InputError, match=f"teacher: objective '{name}' {message}"):
        trainer_for(tmp_path, text_model(0), data, teacher=directory, **options)


def test_distillation_at_temperature_one_takes_it(tmp_path, truncated):
    directory, data = truncated
    options = {"objective": "kd", "objective_settings": {"temperature": 1.0}}
    trainer = trainer_for(tmp_path, text_model(0), data, teacher=directory, **options)
    batch = collate(data)
    logits = text_model(0)(input_ids=batch["input_ids"]).logits
    expected = create("kd", temperature=1.0)(logits, open_cache(directory).read(batch["sample_id"]), batch["labels"])
    torch.testing.assert_close(trainer.compute_loss(trainer.model, batch), expected)


@pytest.mark.parametrize("name", ["tpkd", "ce"])
def test_the_monitor_logs_its_bounds(tmp_path, truncated, name):
    directory, data = truncated
    options = {"objective": name, "callbacks": [MonitorCallback()], "arguments_": CUT}
    trainer = trainer_for(tmp_path, text_model(0), data, teacher=directory, **options)
    trainer.train()
    batch = collate(data)
    logits = text_model(0).eval()(input_ids=batch["input_ids"]).logits
    expected = diagnose(logits, open_cache(directory).read(batch["sample_id"]), batch["labels"]).summary()
    entry = trainer.state.log_history[0]
    assert entry["blocked_share"] == pytest.approx(expected["blocked_share"], rel=1e-5)
    for field in ("conditional_loss", "transfer_cost", "retention", "label_loss"):
        assert entry[field] == pytest.approx(expected["all"][field], rel=1e-4)


def test_it_goes_with_the_labels_it_was_built_with(tmp_path, truncated):
    directory, data = truncated
    shifted = [sample | {"labels": (sample["labels"] + 1) % CLASSES} for sample in data]
    with pytest.raises(InputError, match="labels: expected those that the teacher cache was built with, got class"):
        trainer_for(tmp_path, text_model(0), shifted, teacher=directory).train()
    with pytest.raises(ValueError, match="expected integer class indices with a truncated teacher, got probabilities"):
        trainer_for(tmp_path, text_model(0), softened(data), teacher=directory).train()
