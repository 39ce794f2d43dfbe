"""Files of a store: copied once, verified each time; a store that misbehaves is one line, and nothing wrong is kept."""

import hashlib

import pytest

from object_store import BUCKET, bad_store, object_store, stall
from tpkd import remote_files
from tpkd.errors import InputError
from tpkd.remote_files import is_remote, local_path


@pytest.fixture
def store(monkeypatch, tmp_path):
    with object_store(monkeypatch, tmp_path / "copies") as client:
        yield client


def put(client, key, body):
    client.put_object(Bucket=BUCKET, Key=key, Body=body)


def files_below(directory):
    return [path for path in directory.rglob("*") if path.is_file()]


def test_local_paths_and_file_addresses_stay_where_they_are(tmp_path):
    assert local_path(str(tmp_path)) == tmp_path
    assert local_path(f"file://{tmp_path}/x") == tmp_path / "x"
    assert not is_remote("C://windows")
    assert not is_remote("s3:/bucket")


def test_a_file_is_copied_once_for_each_version(store, monkeypatch):
    put(store, "data/train.csv", b"first")
    path = local_path("s3://bucket/data/train.csv")
    assert (path.name, path.read_bytes()) == ("train.csv", b"first")
    with monkeypatch.context() as patch:
        patch.setattr(remote_files._Store, "_copy", None)  # a second copy would fail
        assert local_path("s3://bucket/data/train.csv") == path
    put(store, "data/train.csv", b"second")
    assert local_path("s3://bucket/data/train.csv").read_bytes() == b"second"
    assert path.read_bytes() == b"first"


def test_a_damaged_copy_is_made_anew(store):
    put(store, "x.bin", b"whole")
    path = local_path("s3://bucket/x.bin")
    path.write_bytes(b"wrong")
    assert local_path("s3://bucket/x.bin").read_bytes() == b"whole"


def test_a_file_with_a_known_hash(store, monkeypatch):
    put(store, "shard", b"rows")
    digest = hashlib.sha256(b"rows").hexdigest()
    path = local_path("s3://bucket/shard", sha256=digest)
    assert path.read_bytes() == b"rows"
    with monkeypatch.context() as patch:
        patch.setattr(remote_files, "_Store", None)  # the store is not asked again
        assert local_path("s3://bucket/elsewhere", sha256=digest) == path
    put(store, "shard", b"r0ws")
    path.unlink()
    with pytest.raises(InputError, match=rf"s3://bucket/shard: expected SHA-256 {digest}, found {'[0-9a-f]' * 64}$"):
        local_path("s3://bucket/shard", sha256=digest)
    assert not path.exists()


def test_a_folder_keeps_its_names(store):
    for key in ("set/train.csv", "set/deep/er/test.csv", "settle/other.csv"):
        put(store, key, key.encode())
    folder = local_path("s3://bucket/set")
    assert {path.relative_to(folder).as_posix(): path.read_text() for path in files_below(folder)} == {
        "train.csv": "set/train.csv",
        "deep/er/test.csv": "set/deep/er/test.csv",
    }
    assert local_path("s3://bucket/set") == folder
    put(store, "set/train.csv", b"new")
    assert (local_path("s3://bucket/set") / "train.csv").read_bytes() == b"new"


def test_names_that_lead_out_of_the_folder_are_refused(store):
    put(store, "set/../../escape", b"x")
    with pytest.raises(InputError, match="expected file names below it"):
        local_path("s3://bucket/set")


def test_what_is_not_there(store):
    with pytest.raises(InputError, match=r"^s3://bucket/none.csv: cannot be read: no such file in the store$"):
        local_path("s3://bucket/none.csv")
    with pytest.raises(InputError, match=r"^s3://nobody/x: cannot be read: "):
        local_path("s3://nobody/x")


def test_an_object_that_is_replaced_while_it_is_read(store, monkeypatch):
    put(store, "x.csv", b"before")
    copy = remote_files._Store._copy

    def replaced(self, address, target, expected):
        digest = copy(self, address, target, expected)
        put(store, "x.csv", b"after!")
        return digest

    monkeypatch.setattr(remote_files._Store, "_copy", replaced)
    with pytest.raises(InputError, match="it was replaced while it was read"):
        local_path("s3://bucket/x.csv")


def cut(handler):
    handler.send_response(206 if "Range" in handler.headers else 200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"a" * 400)
    handler.wfile.flush()
    handler.connection.close()


def short(handler):
    handler.send_response(206 if "Range" in handler.headers else 200)
    handler.send_header("Content-Length", "400")
    handler.end_headers()
    handler.wfile.write(b"a" * 400)


def broken(handler):
    handler.send_response(500)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@pytest.mark.parametrize("behaviour", [stall, cut, short, broken])
def test_a_store_that_misbehaves_is_one_line_and_leaves_nothing(monkeypatch, tmp_path, behaviour):
    monkeypatch.setattr(remote_files, "STALL_SECONDS", 4.0)
    with (
        bad_store(monkeypatch, tmp_path / "copies", behaviour),
        pytest.raises(InputError, match=r"^s3://bucket/x: ") as error,
    ):
        local_path("s3://bucket/x", sha256="0" * 64)
    assert "\n" not in str(error.value)
    assert files_below(tmp_path / "copies") == []


def test_a_missing_package_is_named(monkeypatch):
    with pytest.raises(InputError, match="gs:// needs the package gcsfs: pip install gcsfs"):
        local_path("gs://bucket/x")


def test_a_copy_that_ends_too_early_without_a_known_hash(store, tmp_path, monkeypatch):
    put(store, "x.csv", b"whole")
    monkeypatch.setattr(remote_files._Store, "_chunks", lambda self, address: iter([b"who"]))
    with pytest.raises(InputError, match=r"^s3://bucket/x\.csv: expected 5 bytes, found 3: the store ended too early$"):
        local_path("s3://bucket/x.csv")
    assert files_below(tmp_path / "copies") == []
