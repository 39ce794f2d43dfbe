"""A cache says what its columns are called; one that does not is what it always was."""

import json

import pytest

from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.errors import InputError
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache

NAMES = ("a", "b", "c", "d", "e")


def test_names_are_bound_and_compared(tmp_path):
    build_cache(tmp_path / "c", make_rows(), Teacher(), make_recipe(class_names=NAMES))
    assert open_cache(tmp_path / "c").recipe.class_names == NAMES
    assert open_cache(tmp_path / "c").array([10], [0]).class_names == NAMES
    with pytest.raises(InputError, match=r"class_names\[0\]: expected 'b', found 'a' \(and 1 more entries\)"):
        open_cache(tmp_path / "c", expected=make_recipe(class_names=("b", "a", "c", "d", "e")))
    path = tmp_path / "c" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["recipe"]["class_names"][:2] = ["b", "a"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="fingerprint"):
        open_cache(tmp_path / "c")


def test_a_manifest_without_names_keeps_its_fingerprint_and_opens(tmp_path):
    build_cache(tmp_path / "c", make_rows(), Teacher(), make_recipe())
    path = tmp_path / "c" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["recipe"].pop("class_names", None)  # as earlier versions wrote it
    path.write_text(json.dumps(manifest))
    opened = open_cache(tmp_path / "c", expected=make_recipe(class_names=NAMES))
    assert opened.recipe.class_names is None
    named = make_recipe(class_names=NAMES)
    build_cache(tmp_path / "c", make_rows(), Teacher(), named)  # finished already, and still the same cache
    build_cache(tmp_path / "named", make_rows(), Teacher(), named)
    assert open_cache(tmp_path / "named").answers_sha256 == opened.answers_sha256
    assert open_cache(tmp_path / "named").fingerprint != opened.fingerprint


def test_as_many_names_as_classes():
    with pytest.raises(ValueError, match="class_names: expected 5 different names, got 4"):
        make_recipe(class_names=NAMES[:4])
    with pytest.raises(ValueError, match="class_names: expected 5 different names, got 5"):
        make_recipe(class_names=("a", "a", "b", "c", "d"))
