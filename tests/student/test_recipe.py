"""A recipe survives its file, and a file of another library is left to that library."""

import json

import pytest

from student.test_network import recipe
from tpkd.errors import InputError
from tpkd.student.recipe import read_recipe


def test_a_recipe_survives_its_file(tmp_path):
    written = recipe("builtin:mlp", {"hidden": [3]})
    (tmp_path / "config.json").write_text(written.to_json())
    assert read_recipe(tmp_path) == written


@pytest.mark.parametrize(
    ("model", "kind"),
    [("builtin:mlp", "image or vector"), ("builtin:resnet20", "image"), ("timm:resnet18", "image"), ("hf:x", "text")],
)
def test_the_network_says_what_it_takes(model, kind):
    assert recipe(model, {}).kind == recipe(model, {}).preprocessing["kind"] == kind


def test_no_file_and_a_file_of_another_library_are_none(tmp_path):
    assert read_recipe(tmp_path) is None
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert read_recipe(tmp_path) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class_names": ["a", "a"]}, "class_names: expected at least two different names"),
        ({"options": 3}, "options: expected an object"),
        ({"schema": 9}, "schema: expected 1"),
    ],
)
def test_a_damaged_recipe_is_refused_by_its_file(tmp_path, change, message):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(recipe("builtin:mlp", {}).to_dict() | change))
    with pytest.raises(InputError, match=f"{path}: .*{message}"):
        read_recipe(tmp_path)
