from dataclasses import replace

import pytest

from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.errors import InputError
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.manifest import Manifest, read_manifest
from tpkd.teacher.cache.parts import Part


def test_the_binding_depends_on_recipe_and_keys_and_not_on_the_files():
    first = Manifest.begin(make_rows(), make_recipe(), 10)
    assert Manifest.begin(make_rows(), make_recipe(), 7).fingerprint == first.fingerprint
    assert Manifest.begin(make_rows(22), make_recipe(), 10).fingerprint != first.fingerprint
    assert Manifest.begin(make_rows(), make_recipe(dtype="float32"), 10).fingerprint != first.fingerprint


def test_further_tensors_do_not_change_what_decides_the_logits():
    plain, wide = (Manifest.begin(make_rows(), make_recipe(tensors=tensors), 10) for tensors in ({}, {"layer_1": 4}))
    assert plain.fingerprint != wide.fingerprint
    assert plain.answers_sha256 == wide.answers_sha256


def test_what_is_kept_and_the_labels_decide_the_answers():
    rows = make_rows()
    other = replace(rows, labels=(rows.labels + 1) % 5)
    kept = [Manifest.begin(rows, make_recipe(top_k=top_k), 10) for top_k in (None, 2, 3)]
    kept.append(Manifest.begin(other, make_recipe(top_k=2), 10))
    assert len({manifest.answers_sha256 for manifest in kept}) == len({manifest.fingerprint for manifest in kept}) == 4
    wide = Manifest.begin(rows, make_recipe(top_k=2, tensors={"layer_1": 4}), 10)
    assert wide.answers_sha256 == kept[1].answers_sha256
    with pytest.raises(ValueError, match="labels: expected the label of every row"):
        Manifest.begin(replace(rows, labels=None), make_recipe(top_k=2), 10)


def test_labels_do_not_bind_a_cache_that_keeps_all_logits():
    rows = make_rows()
    with_labels, without = (Manifest.begin(each, make_recipe(), 10) for each in (rows, replace(rows, labels=None)))
    assert with_labels.to_json() == without.to_json()
    assert "labels_sha256" not in with_labels.to_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 70}, "fingerprint: expected"),
        ({"shard_rows": 0}, "shard_rows: expected at least 1, found 0"),
        ({"part": Part(2, 8)}, "part: expected at most 7 parts, as many as shards, found 8"),
    ],
)
def test_a_manifest_that_no_build_writes_is_refused(tmp_path, change, message):
    build_cache(tmp_path, make_rows(), Teacher(), make_recipe(), shard_rows=10)
    replace(read_manifest(tmp_path), **change).publish(tmp_path)
    with pytest.raises(InputError, match=message):
        read_manifest(tmp_path)


def test_a_manifest_is_written_before_the_first_row_and_never_again(tmp_path):
    seen = []

    def forward(keys):
        seen.append((tmp_path / "manifest.json").read_bytes())
        return Teacher()(keys)

    build_cache(tmp_path, make_rows(), forward, make_recipe(), shard_rows=10)
    assert {*seen, (tmp_path / "manifest.json").read_bytes()} == {seen[0]}
    build_cache(tmp_path, make_rows(), Teacher(), make_recipe(), model_source="files")
    assert read_manifest(tmp_path).model_source == "files"
    assert read_manifest(tmp_path).fingerprint == Manifest.begin(make_rows(), make_recipe(), 10).fingerprint


@pytest.mark.parametrize("total", range(1, 8))
def test_parts_share_shards_and_rows_without_gap_or_overlap(total):
    whole = Manifest.begin(make_rows(), make_recipe(), 10)
    parts = [Manifest.begin(make_rows(), make_recipe(), 10, Part(number, total)) for number in range(1, total + 1)]
    assert [index for part in parts for index in part.shard_numbers] == list(whole.shard_numbers) == list(range(7))
    assert [row for part in parts for row in part.row_numbers] == list(whole.row_numbers) == list(range(69))
    assert {part.fingerprint for part in parts} == {whole.fingerprint}


def test_what_another_cache_holds_is_named():
    whole = Manifest.begin(make_rows(), make_recipe(), 10)
    part = replace(whole, part=Part(1, 2))
    assert whole.differences(part) == ["expected a whole cache, found part 1 of 2"]
    assert part.differences(replace(part, part=Part(2, 2))) == ["expected part 1 of 2, found part 2 of 2"]
    assert whole.differences(replace(whole, shard_rows=7, model_source="x")) == []
