import json

import pytest

from teacher.cache.toys import make_recipe
from tpkd.teacher.cache.recipe import CacheRecipe, library_versions


def test_a_recipe_comes_back_from_json_equal_to_itself():
    recipe = make_recipe(tensors={"layer.3": 16})
    assert CacheRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert recipe.differences(recipe) == []


def test_versions_of_tpkd_and_torch_are_bound_without_being_asked_for():
    assert make_recipe().versions == library_versions()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_fingerprint": "other"}, ["model_fingerprint: expected 'weights', found 'other'"]),
        ({"dataset_fingerprint": "other"}, ["dataset_fingerprint: expected 'data', found 'other'"]),
        (
            {"preprocessing": {"pad": 1, "size": (32, 32), "views": {"seed": 7}}},
            ["preprocessing.pad: expected 4, found 1", "preprocessing.views.seed: expected 0, found 7"],
        ),
        (
            {"preprocessing": {"pad": 4, "views": {"seed": 0}}},
            ["preprocessing.size: expected a list of 2, found nothing"],
        ),
        (
            {"class_map": {"names": ["a", "c", "b", "d", "e"]}},
            ["class_map.names[1]: expected 'b', found 'c' (and 1 more entries)"],
        ),
        ({"class_map": {"names": ["a"]}}, ["class_map.names: expected a list of 5, found a list of 1"]),
        ({"num_classes": 6}, ["num_classes: expected 5, found 6"]),
        ({"dtype": "float32"}, ["dtype: expected 'float16', found 'float32'"]),
        ({"tensors": {"pooled": 3}}, ["tensors.pooled: expected nothing, found 3"]),
        ({"versions": {**library_versions(), "torch": "1.0"}}, ["versions.torch: expected '"]),
    ],
)
def test_every_differing_field_is_named_with_expected_and_found(changes, said):
    differences = make_recipe().differences(make_recipe(**changes))
    assert len(differences) == len(said)
    for difference, start in zip(differences, said, strict=True):
        assert difference.startswith(start)


def test_no_class_map_differs_from_one():
    (difference,) = make_recipe(class_map=None).differences(make_recipe())
    assert difference.startswith("class_map: expected nothing, found {'names'")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"dtype": "bfloat16"}, "dtype: expected one of float16, float32, got 'bfloat16'"),
        ({"num_classes": 1}, "num_classes: expected at least 2, got 1"),
        ({"tensors": {"logits": 3}}, "tensors: expected a name other than .*, got 'logits'"),
        ({"tensors": {"../x": 3}}, "tensors: expected a name .*, got '../x'"),
        ({"tensors": {"pooled": 0}}, r"tensors\['pooled'\]: expected a width of at least 1, got 0"),
        ({"preprocessing": {"mean": float("nan")}}, "JSON"),
    ],
)
def test_what_no_cache_can_hold_is_refused(changes, match):
    with pytest.raises(ValueError, match=match):
        make_recipe(**changes)
