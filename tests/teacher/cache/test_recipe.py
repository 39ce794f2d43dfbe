import json

import pytest

from teacher.cache.toys import make_recipe
from tpkd.teacher.cache.recipe import CacheRecipe, library_versions


def test_a_recipe_comes_back_from_json_equal_to_itself():
    recipe = make_recipe(tensors={"layer.3": 16})
    assert CacheRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert recipe.differences(recipe) == []


def test_what_the_model_gives_is_the_same_whatever_is_kept_of_it():
    whole, truncated = (make_recipe(top_k=top_k, tensors={"pooled": 3}) for top_k in (None, 2))
    assert whole.outputs == truncated.outputs == {"logits": 5, "pooled": 3}
    assert list(whole.columns) == ["logits", "pooled"]
    assert list(truncated.columns) == ["log_probs", "indices", "label_log_probs", "rest_log_probs", "pooled"]


def test_a_recipe_from_before_truncation_reads_and_writes_as_it_did():
    assert "top_k" not in make_recipe().to_dict()
    assert make_recipe(tensors={"indices": 2}).columns["indices"].width == 2  # such a name was free then
    assert CacheRecipe.from_dict(make_recipe(top_k=2).to_dict()).top_k == 2


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
        ({"top_k": 2}, ["top_k: expected nothing, found 2"]),
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
        ({"top_k": 0}, "top_k: expected from 1 to all 5 classes, got 0"),
        ({"top_k": 6}, "top_k: expected from 1 to all 5 classes, got 6"),
        ({"top_k": 2, "tensors": {"indices": 2}}, "tensors: expected a name other than .*, got 'indices'"),
        ({"tensors": {"pooled": 0}}, r"tensors\['pooled'\]: expected a width of at least 1, got 0"),
        ({"preprocessing": {"mean": float("nan")}}, "JSON"),
    ],
)
def test_what_no_cache_can_hold_is_refused(changes, match):
    with pytest.raises(ValueError, match=match):
        make_recipe(**changes)
