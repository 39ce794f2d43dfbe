"""Every way in which a cache can be wrong is refused by name before a row of it is used."""

import json
import os
import pickle
import re
import shutil

import numpy as np
import pytest

from teacher.cache.journals import edit_journal, vouch
from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.errors import InputError
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.shards import shard_layout
from tpkd.teacher.cache.verify import verify_cache

FULL = os.environ.get("TPKD_FAULTS") == "full"
SHARD = "shard-00002.safetensors"


@pytest.fixture(scope="module", params=[None, 2], ids=["all", "top 2"])
def top_k(request):
    """All logits, or the largest two classes: damage is found in both."""
    return request.param


@pytest.fixture(scope="module")
def sound(tmp_path_factory, top_k):
    directory = tmp_path_factory.mktemp("sound")
    build_cache(directory, make_rows(69, 1), Teacher(), make_recipe(top_k=top_k), shard_rows=10)
    return directory


@pytest.fixture
def cache(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "cache")


def edit_manifest(directory, change):
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def replace_shard(directory, data):
    """A hostile shard with a journal that vouches for it."""
    (directory / SHARD).write_bytes(data)
    vouch(directory, SHARD)


def refused(directory, match, **settings):
    with pytest.raises(InputError, match=match) as refusal:
        open_cache(directory, **settings)
    assert "\n" not in str(refusal.value), "one line"


WRONG_RECIPES = {
    "teacher": ({"model_fingerprint": "other"}, "model_fingerprint: expected 'other', found 'weights'"),
    "data and their order": ({"dataset_fingerprint": "other"}, "dataset_fingerprint: expected 'other', found 'data'"),
    "view recipe": ({"preprocessing": {"pad": 4, "size": [32, 32], "views": {"seed": 1}}}, "preprocessing.views.seed"),
    "class map": (
        {"class_map": {"names": ["b", "a", "c", "d", "e"]}},
        r"class_map.names\[0\]: expected 'b', found 'a'",
    ),
    "no class map": ({"class_map": None}, "class_map: expected nothing, found"),
    "classes": ({"num_classes": 6}, "num_classes: expected 6, found 5"),
    "dtype": ({"dtype": "float32"}, "dtype: expected 'float32', found 'float16'"),
    "tensors": ({"tensors": {"pooled": 8}}, "tensors.pooled: expected 8, found nothing"),
    "torch": ({"versions": {**make_recipe().versions, "torch": "9.9"}}, "versions.torch: expected '9.9', found"),
    "more of the largest classes": ({"top_k": 3}, "top_k: expected 3, found (nothing|2)"),
}


@pytest.mark.parametrize("name", WRONG_RECIPES)
def test_a_cache_of_something_else_is_refused_by_field(sound, top_k, name):
    changes, match = WRONG_RECIPES[name]
    expected = make_recipe(**{"top_k": top_k, **changes})
    refused(sound, f"{sound}: this cache was computed from something else: {match}", expected=expected)


def test_a_truncated_cache_is_not_taken_for_a_whole_one_nor_the_other_way_round(sound, top_k):
    expected, match = (2, "expected 2, found nothing") if top_k is None else (None, "expected nothing, found 2")
    refused(sound, f"something else: top_k: {match}$", expected=make_recipe(top_k=expected))


def test_all_differing_fields_are_named_at_once(sound, top_k):
    other = make_recipe(model_fingerprint="x", dtype="float32", class_map=None, top_k=top_k)
    refused(sound, "model_fingerprint: .*; class_map: .*; dtype: ", expected=other)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100, -100, -1, +1])
def test_a_shard_of_another_size_is_refused_by_name(cache, size):
    data = (cache / SHARD).read_bytes()
    (cache / SHARD).write_bytes(data + b"\0" if size == 1 else data[:size])
    for check in (True, False):
        refused(cache, rf"{SHARD}: expected {len(data)} bytes, found", check=check)
    assert verify_cache(cache).problems[0].startswith(f"{cache / SHARD}: expected {len(data)} bytes")


def test_a_missing_shard_is_refused_by_name(cache):
    (cache / SHARD).unlink()
    for check in (True, False):
        refused(cache, f"{SHARD}: cannot be read: No such file", check=check)


def test_every_flipped_byte_of_a_shard_is_refused_by_name(cache):
    path = cache / SHARD
    data = path.read_bytes()
    places = range(0, len(data), 1 if FULL else 5)
    for place in places:
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        path.write_bytes(flipped)
        refused(cache, f"{SHARD}: expected SHA-256")
        assert verify_cache(cache).problems[0].startswith(f"{path}: expected SHA-256")
    print(f"cache: {len(places)} flipped bytes of a shard refused")


def test_every_flipped_byte_of_a_manifest_is_refused(cache):
    path = cache / "manifest.json"
    data = path.read_bytes()
    places = range(0, len(data), 1 if FULL else 3)
    for place in places:
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 7)
        path.write_bytes(flipped)
        refused(cache, str(cache))
    print(f"cache: {len(places)} flipped bytes of a manifest refused")


def test_every_flipped_byte_of_a_journal_is_refused(cache):
    path = cache / "shards.jsonl"
    data = path.read_bytes()
    last = data.rindex(b"\n", 0, -1)  # from here on it cannot be told whether a line was damaged or never finished
    places = range(0, len(data), 1 if FULL else 7)
    for place in places:
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        path.write_bytes(flipped)
        line = data.count(b"\n", 0, place) + 1
        refused(cache, f"shards.jsonl: line {line}: damaged" if place < last else "the last line of shards.jsonl torn")
    print(f"cache: {len(places)} flipped bytes of a journal refused")


def test_every_flipped_byte_of_an_index_is_refused(cache):
    path = cache / "index.safetensors"
    data = path.read_bytes()
    for place in range(0, len(data), 1 if FULL else 11):
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        path.write_bytes(flipped)
        refused(cache, "index.safetensors: expected SHA-256")
    path.unlink()
    for check in (True, False):
        refused(cache, "index.safetensors: cannot be read: No such file", check=check)


@pytest.mark.parametrize("size", [0, 1, 100, -1000, -2])
def test_a_truncated_manifest_is_refused_by_name(cache, size):
    path = cache / "manifest.json"
    path.write_bytes(path.read_bytes()[:size])
    refused(cache, "manifest.json: damaged")


def test_shards_that_changed_places_are_refused(cache):
    first, second = cache / "shard-00000.safetensors", cache / "shard-00001.safetensors"
    first.rename(cache / "x")
    second.rename(first)
    (cache / "x").rename(second)
    refused(cache, "shard-00000.safetensors: expected SHA-256")
    opened, rows = open_cache(cache, check=False), make_rows(69, 1)
    for name, row in (("shard-00000", 0), ("shard-00001", 10)):
        with pytest.raises(InputError, match=f"{name}.safetensors: expected rows with keys from"):
            opened.read(rows.sample_ids[row : row + 1], rows.view_ids[row : row + 1])
    assert len(opened.read(rows.sample_ids[20:30], rows.view_ids[20:30])) == 10


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/etc/passwd", "sub/../../x", "shard-00001.safetensors", "", "\0", "~/x"]
)
def test_a_journal_that_names_another_file_is_refused_and_the_file_not_opened(cache, top_k, name):
    shutil.copy(cache / SHARD, cache.parent / "outside.safetensors")
    edit_journal(cache, lambda lines: lines[2].update(file=name))
    recipe = make_recipe(top_k=top_k)
    for action in (open_cache, verify_cache, lambda path: build_cache(path, make_rows(69, 1), Teacher(), recipe)):
        with pytest.raises(InputError, match=rf"shards.jsonl: line [34]: file: expected {SHARD}, found"):
            action(cache)


HOSTILE_MANIFESTS = {
    "rows": (lambda m: m.update(rows=10**18), "fingerprint: expected"),
    "no rows": (lambda m: m.update(rows=0), "fingerprint: expected"),
    "shard rows": (lambda m: m.update(shard_rows=0), "shard_rows: expected at least 1, found 0"),
    "huge shard rows": (lambda m: m.update(shard_rows=10**30), "shards.jsonl: line 1: rows: expected 69, found 10"),
    "schema": (lambda m: m.update(schema=3), "schema: expected 2 for Manifest, got 3"),
    "an earlier schema": (lambda m: m.update(schema=1), r"EarlierManifest: missing \['shards'\]"),
    "a part that there is not": (
        lambda m: m.update(part={"number": 3, "total": 2}),
        "part: expected a number from 1 to 2, got 3",
    ),
    "more parts than shards": (lambda m: m.update(part={"number": 3, "total": 9}), "part: expected at most 7 parts"),
    "unknown key": (lambda m: m.update(hook="os.system"), r"missing nothing, unknown \['hook'\]"),
    "missing key": (lambda m: m.pop("keys_sha256"), r"missing \['keys_sha256'\]"),
    "type": (lambda m: m.update(rows="69"), "Manifest.rows: expected int, got '69'"),
    "null": (lambda m: m.update(keys_sha256=None), "Manifest.keys_sha256: expected str, got None"),
    "recipe": (lambda m: m["recipe"].update(dtype="object"), "dtype: expected one of float16, float32"),
    "tensor name": (lambda m: m["recipe"].update(tensors={"../x": 1}), "tensors: expected a name"),
    "classes kept": (lambda m: m["recipe"].update(top_k=3), "fingerprint: expected"),
    "more classes kept than there are": (lambda m: m["recipe"].update(top_k=6), "top_k: expected from 1 to all 5"),
    "other labels": (lambda m: m.update(labels_sha256="0" * 64), "fingerprint: expected"),
}


@pytest.mark.parametrize("name", HOSTILE_MANIFESTS)
def test_a_manifest_that_contradicts_itself_is_refused_by_field(cache, name):
    change, match = HOSTILE_MANIFESTS[name]
    edit_manifest(cache, change)
    refused(cache, match)


HOSTILE_JOURNALS = {
    "rows of a shard": (lambda lines: lines[1].update(rows=10**15), "line 2: rows: expected 10, found"),
    "bytes": (lambda lines: lines[1].update(bytes=-1), "shard-00001.safetensors: expected -1 bytes"),
    "checksum": (lambda lines: lines[1].update(sha256="../x"), "line 2: sha256: expected 64 hexadecimal"),
    "a shard too many": (
        lambda lines: lines.insert(7, {**lines[6], "file": "shard-00007.safetensors"}),
        "line 8: file: expected at most 7 shards, found shard-00007.safetensors as well",
    ),
    "a shard too few": (
        lambda lines: lines.pop(2),
        "line 3: file: expected shard-00002.safetensors, found 'shard-00003",
    ),
    "the last shards missing": (lambda lines: lines.__delitem__(slice(6, None)), "expected 69 rows, found 60 written;"),
    "no index": (lambda lines: lines.pop(), "expected index.safetensors, found none"),
    "an index too early": (lambda lines: lines.insert(3, lines[7]), "line 4: file: expected shard-00003.safetensors"),
    "another index": (lambda lines: lines[7].update(file="../index"), r"line 8: ShardEntry: .* unknown \['width'\]"),
    "the width of the index": (lambda lines: lines[7].update(width=0), "line 8: width: expected at least 1, found 0"),
    "a huge width": (lambda lines: lines[7].update(width=10**15), "index.safetensors: tensor 'rows': expected I32 of"),
    "bytes of the index": (lambda lines: lines[7].update(bytes=3), "index.safetensors: expected 3 bytes, found"),
    "schema": (lambda lines: lines[1].update(schema=2), "line 2: schema: expected 1 for ShardEntry, got 2"),
    "unknown key": (
        lambda lines: lines[1].update(hook="x"),
        r"line 2: ShardEntry: missing nothing, unknown \['hook'\]",
    ),
    "missing key": (lambda lines: lines[1].pop("bytes"), r"line 2: ShardEntry: missing \['bytes'\]"),
    "type": (lambda lines: lines[1].update(rows="10"), "line 2: ShardEntry.rows: expected int, got '10'"),
    "another first key": (
        lambda lines: lines[2].update(first=[1, 2]),
        f"{SHARD}: expected rows with keys (as the journal has them|from)",
    ),
    "a first key that is none": (
        lambda lines: lines[2].update(first=[1]),
        "line 3: first: expected a sample and a view",
    ),
    "runs that are none": (
        lambda lines: lines[2].update(runs=[[1, 0, 3]]),
        "line 3: runs: expected sample id, view id",
    ),
    "runs of other rows": (
        lambda lines: lines[2].update(runs=[[10**6, 0, 10]]),
        f"{SHARD}: expected rows with keys as the journal has them, found others",
    ),
}


@pytest.mark.parametrize("name", HOSTILE_JOURNALS)
def test_a_journal_that_contradicts_itself_is_refused_by_line_or_file(cache, name):
    change, match = HOSTILE_JOURNALS[name]
    edit_journal(cache, change)
    refused(cache, match)


@pytest.mark.parametrize(
    "text", ["[]", "3", "null", "{}", '{"schema": 1}', "[" * 100_000, "\xff", "NaN", '"' + "x" * 10**6 + '"']
)
def test_a_manifest_that_is_no_manifest_is_refused(cache, text):
    (cache / "manifest.json").write_text(text, encoding="latin-1")
    refused(cache, "manifest.json: damaged")


def test_a_manifest_or_journal_larger_than_any_is_refused_unread(cache):
    for name, match in (
        ("shards.jsonl", "shards.jsonl: line 9: damaged"),
        ("manifest.json", "manifest.json: expected at most 67108864 bytes, found more"),
    ):
        with (cache / name).open("r+b") as file:
            file.truncate(1 << 40)  # sparse: takes no room on disk, but would fill the memory
        refused(cache, match)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def with_header(length, text=b""):
    return length.to_bytes(8, "little") + text


def resaved(top_k, **changes):
    """A sound safetensors file whose tensors are not those of the recipe; `answers` are logits or log-probabilities."""
    from safetensors.numpy import save

    layout = shard_layout(make_recipe(top_k=top_k), 10)
    arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in layout.items()} | {"written": np.ones(10, bool)}
    names = {"answers": "logits" if top_k is None else "log_probs"}
    changed = {names.get(name, name): array for name, array in changes.items()}
    return save({name: array for name, array in {**arrays, **changed}.items() if array is not None})


HOSTILE_SHARDS = {
    "a pickle": (lambda k: pickle.dumps(Bomb()), "expected a header of at most 1048576 bytes, found"),
    "a header said to be 200 MB": (
        lambda k: with_header(200 << 20),
        "header of at most 1048576 bytes, found 209715200",
    ),
    "a header of 200 MB": (
        lambda k: with_header(200 << 20, b" " * (200 << 20)),
        "of at most 1048576 bytes, found 209715",
    ),
    "a header of 2^64 - 1": (
        lambda k: with_header(2**64 - 1, b"{}"),
        "at most 1048576 bytes, found 18446744073709551615",
    ),
    "a header longer than the file": (lambda k: with_header(1000, b"{}"), "damaged"),
    "a header that is no JSON": (lambda k: with_header(8, b"()[]{}::"), "damaged"),
    "a header that is a list": (lambda k: with_header(2, b"[]"), "damaged"),
    "offsets beyond the file": (
        lambda k: with_header(64, b'{"logits":{"dtype":"F16","shape":[10,5],"data_offsets":[0,100]}}'),
        "damaged",
    ),
    "no file": (lambda k: b"", "cannot|damaged|empty"),
    "another dtype": (
        lambda k: resaved(k, answers=np.zeros((10, k or 5), np.float32)),
        "tensor 'log(its|_probs)': expected F16 of shape",
    ),
    "another width": (lambda k: resaved(k, answers=np.zeros((10, 6), np.float16)), r"found F16 of shape \(10, 6\)"),
    "a tensor less": (lambda k: resaved(k, written=None), "tensor 'written': expected BOOL of shape .10,., found none"),
    "a tensor more": (lambda k: resaved(k, extra=np.zeros(1)), "tensor 'extra': expected none, found F64"),
    "other keys": (resaved, "more than once|expected rows with keys"),
}


@pytest.mark.parametrize("name", HOSTILE_SHARDS)
def test_a_hostile_shard_is_refused_even_if_the_manifest_vouches_for_it(cache, top_k, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, match = HOSTILE_SHARDS[name]
    replace_shard(cache, make(top_k))
    before = sorted(path.name for path in tmp_path.rglob("*"))
    refused(cache, match)
    assert not verify_cache(cache).passes
    assert sorted(path.name for path in tmp_path.rglob("*")) == before, "nothing executed, nothing written"


def set_value(name, place, value):
    def change(arrays):
        arrays[name][place] = value

    return change


IMPOSSIBLE_ROWS = {
    "a class that there is not": (
        set_value("indices", (3, 1), 5),
        "indices: expected classes from 0 to 4, .*got 5 in row 3",
    ),
    "a class twice": (set_value("indices", 4, 1), "indices: expected every class once, got class 1 twice in row 4"),
    "a probability above one": (set_value("log_probs", (2, 0), 0.5), "log_probs: .* at most 0, got 0.5 in row 2"),
    "a probability that is none": (set_value("rest_log_probs", 7, np.nan), "rest_log_probs: .* got nan in row 7"),
    "a label above one": (set_value("label_log_probs", 0, 1.0), "label_log_probs: .* got 1 in row 0"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE_ROWS)
def test_rows_that_no_teacher_gives_are_refused_even_if_the_manifest_vouches_for_them(tmp_path, name):
    from safetensors.numpy import load_file, save

    change, match = IMPOSSIBLE_ROWS[name]
    build_cache(tmp_path, make_rows(69, 1), Teacher(), make_recipe(top_k=2), shard_rows=10)
    arrays = load_file(tmp_path / SHARD)
    change(arrays)
    replace_shard(tmp_path, save(arrays))
    refused(tmp_path, f"{SHARD}: {match}")
    (problem,) = verify_cache(tmp_path).problems
    assert re.search(f"{SHARD}: {match}", problem)
