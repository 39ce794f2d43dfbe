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
