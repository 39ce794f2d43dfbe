"""The section `data`: what does not go together."""

import pytest

from tpkd.config.data import DataConfig
from tpkd.config.loading import resolve_config
from tpkd.errors import InputError


def plain(data):
    rest = {"output": "runs/x", "student": {"model": "builtin:mlp"}, "objective": "kl-dist", "epochs": 1}
    return {**rest, "optimizer": {"name": "sgd", "learning_rate": 0.1}, "data": {"name": "digits", **data}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"unlabelled": True, "class_weights": "balanced"}, "class_weights: expected none beside unlabelled: true"),
        ({"unlabelled": True, "test": 0.2}, "test: expected none beside unlabelled: true"),
        ({"unlabelled": True, "validation": 0.2}, "validation: expected none beside unlabelled: true"),
        ({"unlabelled": True, "per_class": 3}, "per_class: expected none beside unlabelled: true"),
        ({"unlabelled": True, "except_per_class": 3}, "except_per_class: expected none beside unlabelled: true"),
        ({"class_names": "a.txt"}, "class_names: expected none without unlabelled: true"),
        ({"test": 0.2, "splits": {"test": "b.csv"}}, r"test: expected none beside splits\.test, found 0\.2"),
        ({"test": 0.6, "validation": 0.5}, "validation: expected shares that leave something to train on"),
    ],
)
def test_what_does_not_go_together_is_refused_by_its_key(data, message):
    with pytest.raises(InputError, match=f"config: data: {message}"):
        resolve_config(plain(data))


def test_a_data_set_has_labels_unless_it_is_said_to_have_none():
    data = DataConfig(name="digits")
    assert (data.unlabelled, data.class_names, data.held_out, data.columns.given, data.splits.given) == (
        *(False, None),
        *({}, {}, {}),
    )
