"""Caches in an object store: the same rows as here, copied once; whatever the store does wrong is named, never read."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from object_store import BUCKET, bad_store, object_store, stall, upload
from tpkd import remote_files
from tpkd.errors import InputError
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.remote import readable_cache, refuse_writing
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.verify import cache_info

ADDRESS = "s3://bucket/caches/mine"


def forward(inputs):
    return {"logits": inputs[:, None] * torch.tensor([1.0, -0.5, 0.25])}


@pytest.fixture
def cache(tmp_path):
    """Sixty rows in shards of a few, with ids that need an index."""
    ids = np.random.default_rng(0).permutation(1000)[:60]
    rows = CacheRows.of_views(ids, 1, lambda samples, views: torch.tensor(samples).float())
    build_cache(tmp_path / "cache", rows, forward, CacheRecipe("weights", "data", {}, None, 3), shard_bytes=400)
    assert len(list((tmp_path / "cache").glob("shard-*"))) > 2
    return tmp_path / "cache", ids


@pytest.fixture
def store(monkeypatch, tmp_path, cache):
    with object_store(monkeypatch, tmp_path / "copies") as client:
        upload(client, cache[0], "caches/mine")
        yield client


def test_rows_are_those_of_the_cache(store, cache):
    directory, ids = cache
    here, there = open_cache(directory), open_cache(readable_cache(ADDRESS))
    assert torch.equal(here.read(ids), there.read(ids))
    assert there.answers_sha256 == here.answers_sha256


def test_info_copies_no_shard(store, tmp_path):
    assert cache_info(readable_cache(ADDRESS, shards=False)).rows_written == 60
    assert not list((tmp_path / "copies").rglob("shard-*"))


def test_a_copy_is_used_again_and_continues(store, cache, monkeypatch):
    mirror = readable_cache(ADDRESS)
    copied = []
    copy = remote_files._Store._copy
    monkeypatch.setattr(
        remote_files._Store, "_copy", lambda self, address, *rest: copied.append(address) or copy(self, address, *rest)
    )
    assert readable_cache(ADDRESS) == mirror
    assert copied == []
    lost = mirror / "shard-00001.safetensors"
    lost.resolve().write_bytes(b"damaged")  # a link: the copy itself
    assert open_cache(readable_cache(ADDRESS)).read(cache[1]).shape == (60, 3)
    assert copied == [f"{ADDRESS}/shard-00001.safetensors"]


@pytest.mark.parametrize("name", ["shard-00001.safetensors", "index.safetensors", "shards.jsonl", "manifest.json"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "removed"])
def test_damage_in_the_store_is_named(store, cache, name, damage):
    found = next(path for path in cache[0].iterdir() if path.name.startswith(name.split(".")[0]))
    body = bytearray(found.read_bytes())
    key = f"caches/mine/{found.name}"
    if damage == "removed":
        store.delete_object(Bucket=BUCKET, Key=key)
    else:
        body[len(body) // 2] ^= 1
        store.put_object(Bucket=BUCKET, Key=key, Body=bytes(body if damage == "flipped" else body[: len(body) // 2]))
    with pytest.raises(InputError) as error:
        open_cache(readable_cache(ADDRESS))
    assert "\n" not in str(error.value)


def test_a_shard_that_is_replaced_by_another_one_of_its_size(store, cache):
    first, second = (cache[0] / f"shard-0000{number}.safetensors" for number in (0, 1))
    assert first.stat().st_size == second.stat().st_size
    store.put_object(Bucket=BUCKET, Key="caches/mine/shard-00000.safetensors", Body=second.read_bytes())
    with pytest.raises(InputError, match=rf"^{ADDRESS}/shard-00000.safetensors: expected SHA-256"):
        readable_cache(ADDRESS)


def test_a_store_that_does_not_answer(monkeypatch, tmp_path):
    monkeypatch.setattr(remote_files, "STALL_SECONDS", 1.0)
    with (
        bad_store(monkeypatch, tmp_path / "copies", stall),
        pytest.raises(InputError, match="the store did not answer for 1 seconds"),
    ):
        readable_cache("s3://bucket/x")


def test_directories_and_file_addresses(tmp_path):
    assert readable_cache("runs/cache") == Path("runs/cache")
    assert readable_cache(f"file://{tmp_path}") == tmp_path


def test_nothing_is_written_to_a_store():
    with pytest.raises(InputError, match=r"teacher\.cache: s3://b/c can be read but not written; build it"):
        refuse_writing("teacher.cache", "s3://b/c")
    refuse_writing("teacher.cache", "runs/cache")


def test_a_cache_of_an_earlier_version(store, cache, tmp_path):
    earlier = Path(__file__).parent / "earlier" / "ids-in-order"
    shutil.copytree(earlier, tmp_path / "earlier")
    upload(store, earlier, "earlier")
    assert open_cache(readable_cache("s3://bucket/earlier")).manifest.rows > 0
