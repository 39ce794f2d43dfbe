"""The teacher of a configuration: one without trained weights is refused unless asked for."""

import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForSequenceClassification

from tpkd.config.loading import ConfigError
from tpkd.data.loading import load_dataset
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.teacher.network import build_teacher
from training.tiny import TEACHER_OPTIONS, make_config

SMALL = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def build(directory, **teacher):
    config = make_config(directory, teacher={"layers": [1], **teacher})
    return build_teacher(config, load_dataset("digits", "train")).model


@pytest.fixture
def folders(tmp_path):
    """A fine-tuned classifier of the ten digits, and an encoder without a classifier, as their library saves them."""
    model = BertForSequenceClassification(BertConfig(**SMALL, intermediate_size=32, num_labels=10))
    model.save_pretrained(tmp_path / "classifier")
    model.bert.save_pretrained(tmp_path / "encoder")
    return tmp_path


@pytest.mark.parametrize(
    ("teacher", "reason"),
    [
        ({"model": "builtin:mlp", "options": TEACHER_OPTIONS}, "builtin:mlp .no weights are given"),
        ({"model": "builtin:mlp", "options": TEACHER_OPTIONS, "head": "random"}, "its head is random"),
        ({"model": "builtin:resnet8"}, "no weights are given"),
        ({"model": "builtin:bert", "options": {"layers": 1, "hidden_size": 16}}, "no weights are given"),
        ({"model": "hf:ENCODER"}, "brings no classifier of its own"),
        ({"model": "hf:CLASSIFIER", "head": "random"}, "its head is random"),
    ],
)
def test_a_teacher_without_trained_weights_is_refused(folders, teacher, reason):
    places = {"ENCODER": str(folders / "encoder"), "CLASSIFIER": str(folders / "classifier")}
    for word, place in places.items():
        teacher = teacher | {"model": teacher["model"].replace(word, place)}
    with pytest.raises(
        ConfigError, match=rf"^teacher\.weights: expected trained weights, found none for .*{reason}"
    ) as e:
        build(folders, **teacher)
    assert "teacher.untrained: true" in str(e.value)
    assert "\n" not in str(e.value)


def test_a_trained_teacher_is_taken(folders):
    saved = build_model(ModelSpec("builtin:mlp", num_classes=10, options=TEACHER_OPTIONS, seed=3))
    save_file(saved.state_dict(), folders / "w.safetensors")
    model = build(folders, model="builtin:mlp", options=TEACHER_OPTIONS, weights=str(folders / "w.safetensors"))
    assert torch.equal(model.classifier.weight, saved.classifier.weight)
    # Its weights are trained, and it is refused only when it is tried on a sample: it reads texts.
    with pytest.raises(ConfigError, match=r"^teacher\.model: hf:.* does not fit the inputs of digits: .*input_ids"):
        build(folders, model=f"hf:{folders / 'classifier'}")


def test_a_random_teacher_can_be_asked_for(tmp_path):
    model = build(tmp_path, model="builtin:mlp", options=TEACHER_OPTIONS, untrained=True)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_asking_for_a_random_teacher_refuses_a_trained_one(folders):
    with pytest.raises(ConfigError, match=r"^teacher\.untrained: expected false, because hf:.* brings trained weights"):
        build(folders, model=f"hf:{folders / 'classifier'}", untrained=True)
