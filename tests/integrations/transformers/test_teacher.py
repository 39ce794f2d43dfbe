"""A teacher, as a network or as a cache: frozen, in evaluation mode, never saved, and asked about the right samples."""

import copy
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from integrations.transformers.tiny import (
    CLASSES,
    SEPARABLE,
    assert_close,
    collate,
    first_gradients,
    image_model,
    images,
    text_model,
    texts,
    token_model,
    tokens,
    trainer_for,
)
from tpkd.errors import InputError
from tpkd.objectives import names
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows


class Noisy(nn.Module):
    """A teacher with batch statistics and dropout, both of which evaluation mode keeps still."""

    def __init__(self):
        super().__init__()
        self.network, self.dropout = image_model(7), nn.Dropout(0.5)

    def forward(self, pixel_values):
        return self.dropout(self.network(pixel_values).logits)


def test_a_teacher_learns_nothing_even_when_somebody_sets_it_to_train(tmp_path):
    teacher = Noisy()
    before = copy.deepcopy(teacher.state_dict())
    trainer = trainer_for(tmp_path, image_model(0), images(), teacher=teacher, arguments_={"max_steps": 3})
    teacher.train()
    trainer.train()
    assert not any(module.training for module in teacher.modules())
    assert not any(parameter.requires_grad or parameter.grad is not None for parameter in teacher.parameters())
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())


def test_no_checkpoint_and_no_optimiser_holds_a_teacher(tmp_path):
    student, teacher = text_model(0), text_model(1, hidden=64)
    trainer = trainer_for(
        tmp_path, student, texts(), teacher=teacher, arguments_={"save_strategy": "steps", "save_steps": 1}
    )
    trainer.train()
    checkpoint = tmp_path / "checkpoint-1"
    saved = load_file(checkpoint / "model.safetensors")
    assert saved.keys() == student.state_dict().keys()
    assert all(value.shape == student.state_dict()[name].shape for name, value in saved.items())
    moments = torch.load(checkpoint / "optimizer.pt", weights_only=True)["state"]
    assert len(moments) == len(list(student.parameters()))
    size = sum(file.stat().st_size for file in checkpoint.iterdir())
    # Weights and two moments, and far less than one teacher for all the rest.
    weight = sum(value.numel() * value.element_size() for value in student.state_dict().values())
    assert size < 3 * weight + 100_000 < sum(4 * each.numel() for each in teacher.parameters())
    assert "teacher" not in json.dumps(trainer.args.to_dict())


def test_a_teacher_is_not_wrapped_and_not_prepared(tmp_path):
    teacher = text_model(1)
    trainer = trainer_for(tmp_path, text_model(0), texts(), teacher=teacher)
    trainer.train()
    assert trainer.teacher.model is teacher
    assert not any(teacher is prepared for prepared in trainer.accelerator._models)
    learning = {id(parameter) for group in trainer.optimizer.param_groups for parameter in group["params"]}
    assert learning == {id(parameter) for parameter in trainer.model.parameters()}


class Wider(nn.Module):
    """A teacher that reads a column the student does not know."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(CLASSES, CLASSES)

    def forward(self, topic_ids):
        return {"logits": self.table(topic_ids)}


class Narrow(nn.Module):
    """A student that takes nothing but words and returns a tuple."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, CLASSES)

    def forward(self, input_ids):
        return (self.table(input_ids).mean(1),)


def test_each_network_gets_the_columns_it_reads(tmp_path):
    data = [sample | {"topic_ids": sample["labels"], "unread": 1} for sample in texts()]
    trainer = trainer_for(tmp_path, Narrow(), data, teacher=Wider(), eval_dataset=data)
    trainer.train()
    assert trainer.state.log_history[0]["loss"] > 0
    found = trainer.predict(data)
    assert found.predictions.shape == (64, CLASSES)
    expected = functional.cross_entropy(torch.tensor(found.predictions), collate(data)["labels"]).item()
    assert found.metrics["test_loss"] == pytest.approx(expected, rel=1e-5)


class Anonymous(nn.Module):
    """A network whose forward names nothing."""

    def __init__(self, seed):
        super().__init__()
        self.network = text_model(seed)

    def forward(self, **batch):
        assert batch.keys() == {"input_ids"}
        return self.network(**batch)


def compiled(seed):
    return torch.compile(text_model(seed), backend="eager")


@pytest.mark.parametrize(
    ("student", "teacher", "keep"),
    [
        (compiled, compiled, False),
        (compiled, text_model, True),
        (Anonymous, text_model, True),
        (Anonymous,) * 2 + (True,),
    ],
    ids=["compiled", "compiled-student", "anonymous-student", "anonymous"],
)
def test_networks_that_hide_their_inputs_get_theirs(tmp_path, student, teacher, keep):
    """Where nothing is named the Trainer itself would drop every column, so all of them are to be kept."""
    expected = first_gradients(tmp_path, text_model(0), texts(), teacher=text_model(1))
    settings = {"remove_unused_columns": not keep}
    found = first_gradients(tmp_path, student(0), texts(), teacher=teacher(1), arguments_=settings)
    plain = {name.removeprefix("_orig_mod.").removeprefix("network."): value for name, value in found.items()}
    assert_close(plain, expected, 1e-6)


def test_a_student_that_names_nothing_does_not_see_the_ids_of_a_cache(tmp_path, cached):
    teacher, data, directory = cached
    settings = {"remove_unused_columns": False}
    found = first_gradients(tmp_path, Anonymous(0), data, teacher=directory, arguments_=settings)
    expected = first_gradients(tmp_path, text_model(0), data, teacher=teacher)
    assert_close({name.removeprefix("network."): value for name, value in found.items()}, expected, 1e-6)


@pytest.fixture
def cached(tmp_path):
    """A teacher, its data, and its answers about them in a cache whose rows stand in another order."""
    teacher, data = text_model(1).eval(), texts(ids=True)
    batch = collate(data)
    with torch.no_grad():
        logits = teacher(input_ids=batch["input_ids"]).logits
    order = torch.randperm(len(data))
    rows = CacheRows(
        batch["sample_id"][order].numpy(), np.zeros(64, int), lambda start, stop: logits[order[start:stop]]
    )
    recipe = CacheRecipe("weights", "data", {}, None, CLASSES, dtype="float32")
    build_cache(tmp_path / "cache", rows, lambda rows: {"logits": rows}, recipe)
    return teacher, data, tmp_path / "cache"


def test_a_cache_gives_the_gradient_of_its_teacher(tmp_path, cached):
    teacher, data, directory = cached
    cut = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}
    found = first_gradients(tmp_path, text_model(0), data, teacher=directory, arguments_=cut)
    assert_close(found, first_gradients(tmp_path, text_model(0), data, teacher=teacher), 1e-6)
    opened = first_gradients(tmp_path, text_model(0), data, teacher=open_cache(directory), arguments_=cut)
    assert_close(opened, found, 0)


def test_evaluation_with_a_cache_needs_no_ids(tmp_path, cached):
    _, data, directory = cached
    trainer = trainer_for(tmp_path, text_model(0), data, teacher=directory)
    plain = texts(seed=1)
    assert trainer.evaluate(plain)["eval_loss"] > 0
    unlabelled = [{name: value for name, value in sample.items() if name != "labels"} for sample in data]
    assert trainer.predict(unlabelled).predictions.shape == (64, CLASSES)


def test_views_are_read_by_their_id(tmp_path):
    answers = torch.randn(64, 2, CLASSES)
    rows = CacheRows.of_views(np.arange(100, 164), 2, lambda samples, views: answers[samples, views])
    recipe = CacheRecipe("weights", "data", {}, None, CLASSES, dtype="float32")
    build_cache(tmp_path / "cache", rows, lambda rows: {"logits": rows}, recipe)
    data = [sample | {"view_id": number % 2} for number, sample in enumerate(texts(ids=True))]
    trainer = trainer_for(tmp_path, text_model(0), data, teacher=tmp_path / "cache")
    found = trainer._ask_teacher(collate(data), None, torch.zeros(64, CLASSES))
    assert torch.equal(found, answers[torch.arange(64), torch.arange(64) % 2])


def test_data_without_ids_or_with_foreign_ones_are_refused(tmp_path, cached):
    _, data, directory = cached
    with pytest.raises(InputError, match="sample_id: expected this column in the training data"):
        trainer_for(tmp_path, text_model(0), texts(), teacher=directory).train()
    data[3]["sample_id"] = 7
    with pytest.raises(InputError, match="sample 7, view 0: no such row is written"):
        trainer_for(tmp_path, text_model(0), data, teacher=directory).train()
    words = [sample | {"sample_id": 100 + number} for number, sample in enumerate(tokens())]
    with pytest.raises(InputError, match="expected a model, because a cache holds one row per sample"):
        trainer_for(tmp_path, token_model(0), words, teacher=directory).train()


@pytest.mark.parametrize("name", sorted(set(names()) - set(SEPARABLE)))
def test_objectives_that_need_more_are_refused_by_what_they_need(tmp_path, name):
    with pytest.raises(
        InputError, match=f"'{name}' needs (features|initial_logits|layer_features|objective_gradients)"
    ):
        trainer_for(tmp_path, text_model(0), texts(), teacher=text_model(1), objective=name)


def test_an_objective_that_asks_nobody_is_refused(tmp_path):
    with pytest.raises(InputError, match="teacher: expected a model or a teacher cache, because objective 'tpkd'"):
        trainer_for(tmp_path, text_model(0), texts())


def test_other_classes_are_refused(tmp_path, cached):
    student, teacher = text_model(0), text_model(1)
    student.config.id2label = dict(enumerate("abcde"))
    teacher.config.id2label = dict(enumerate("abced"))
    with pytest.raises(InputError, match=r"id2label: class 3: expected 'd' as in model.config.id2label, found 'e'"):
        trainer_for(tmp_path, student, texts(), teacher=teacher)
    teacher.config.id2label = dict(enumerate("bacdf"))
    with pytest.raises(InputError, match=r"id2label: class 0: expected 'a' as in model.config.id2label, found 'b'"):
        trainer_for(tmp_path, student, texts(), teacher=teacher)
    teacher.config.id2label = dict(enumerate("abcd"))
    with pytest.raises(InputError, match=r"^teacher: expected the 5 classes of the student, got 4"):
        trainer_for(tmp_path, student, texts(), teacher=teacher)
    student.config.id2label = dict(enumerate("abcd"))
    with pytest.raises(InputError, match="teacher cache: expected the 4 classes of the student, got 5"):
        trainer_for(tmp_path, student, texts(), teacher=cached[2])


def test_classes_of_one_name_and_classes_without_one_are_taken(tmp_path):
    student, teacher = text_model(0), text_model(1)
    student.config.id2label = dict(enumerate("abcde"))
    assert trainer_for(tmp_path, student, texts(), teacher=teacher).teacher.model is teacher
    teacher.config.id2label = dict(enumerate("ABCDE"))
    assert trainer_for(tmp_path, student, texts(), teacher=teacher).teacher.model is teacher


def test_what_is_no_teacher_is_named(tmp_path):
    with pytest.raises(InputError, match="teacher: expected a network, a teacher cache or the directory of one, got l"):
        trainer_for(tmp_path, text_model(0), texts(), teacher=[text_model(1)])


def test_a_student_may_not_be_its_own_teacher(tmp_path):
    student = text_model(0)
    with pytest.raises(InputError, match=r"shares bert.embeddings.word_embeddings.weight with the student"):
        trainer_for(tmp_path, student, texts(), teacher=student)
    assert all(parameter.requires_grad for parameter in student.parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"label_smoothing_factor": 0.1},
            "label_smoothing_factor: expected 0, got 0.1: a smoothed label gives every class",
        ),
        ({"compute_loss_func": lambda *_, **__: 0}, "compute_loss_func: expected None"),
        ({"problem_type": "multi_label_classification"}, "problem_type: expected 'single_label_classification'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_would_change_the_loss_is_refused(tmp_path, change, message):
    student, options, settings = text_model(0), {}, {}
    for name, value in change.items():
        if name == "problem_type":
            student.config.problem_type = value
        else:
            (settings if name == "label_smoothing_factor" else options)[name] = value
    with pytest.raises(InputError, match=message):
        trainer_for(tmp_path, student, texts(), teacher=text_model(1), arguments_=settings, **options)
