from dataclasses import replace

import pytest

from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.errors import InputError
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.manifest import Manifest, damaged_shards, read_manifest


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
        ({"shards": ()}, None),
    ],
)
def test_a_manifest_that_no_build_writes_is_refused(tmp_path, change, message):
    build_cache(tmp_path, make_rows(), Teacher(), make_recipe(), shard_rows=10)
    replace(read_manifest(tmp_path), **change).publish(tmp_path)
    if message is None:
        assert read_manifest(tmp_path).rows_written == 0  # a build that has not got far
        return
    with pytest.raises(InputError, match=message):
        read_manifest(tmp_path)


def test_damage_is_found_shard_by_shard(tmp_path):
    build_cache(tmp_path, make_rows(), Teacher(), make_recipe(), shard_rows=10)
    manifest = read_manifest(tmp_path)
    assert damaged_shards(tmp_path, manifest) == {}
    path = tmp_path / manifest.shards[2].file
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (tmp_path / manifest.shards[4].file).unlink()
    found = damaged_shards(tmp_path, manifest)
    assert found.keys() == {2, 4}
    assert "expected SHA-256" in found[2]
