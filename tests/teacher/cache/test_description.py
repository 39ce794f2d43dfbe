import pytest

from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.description import compare_sizes, describe_kept, kept_sentence
from tpkd.teacher.cache.verify import cache_info


def test_what_is_kept_names_classes_precision_label_and_rest():
    assert describe_kept(make_recipe(dtype="float32")) == "5 classes, float32"
    kept = describe_kept(make_recipe(dtype="float32", top_k=2))
    assert kept == "top 2 of 5 classes and the label, float32; total of the rest, float32"


def test_sizes_are_those_of_the_files(tmp_path):
    recipe = make_recipe(top_k=2, tensors={"pooled": 3})
    row, full = 17 + 2 * (2 + 1) + 2 + 4 + 6, 17 + 2 * 5 + 6
    sentence = kept_sentence(recipe, 10**6)
    assert sentence.endswith(f". {row}.0 MB, {100 * row / full:.3g} % of the {full}.0 MB of all logits in float16.")

    def forward(keys):
        logits = Teacher()(keys)["logits"]
        return {"logits": logits, "pooled": logits[:, :3]}

    build_cache(tmp_path, make_rows(), forward, recipe)
    found = cache_info(tmp_path)
    assert found.full_bytes == 69 * full
    assert 0 < found.bytes - 69 * row < 1000  # the header


@pytest.mark.parametrize(("found", "share"), [(500, "0.05"), (1_000_000, "100"), (0, "0")])
def test_the_share_is_of_full_rows(found, share):
    assert f" {share} % of the 1.0 MB" in compare_sizes(found, 1_000_000)
    assert compare_sizes(0, 0).startswith("0.0 kB, 0 %")  # nothing is written yet
