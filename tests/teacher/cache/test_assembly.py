"""A cache that is taken up again, and one that version 0.1 has begun."""

import shutil

import pytest

from teacher.cache.earlier_caches import EARLIER, earlier_recipe, earlier_rows
from teacher.cache.journals import read_lines
from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.errors import InputError
from tpkd.teacher.cache.assembly import assembling
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.contents import read_contents
from tpkd.teacher.cache.manifest import Manifest
from tpkd.teacher.cache.verify import cache_info, verify_cache


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != ".lock"}


def test_a_shard_that_comes_out_otherwise_gets_a_line_of_its_own(tmp_path):
    """Another machine may compute other last bits; the journal then says so, and what it said before is kept."""
    rows, recipe = make_rows(), make_recipe()
    build_cache(tmp_path, rows, Teacher(), recipe, shard_rows=10)
    lines = read_lines(tmp_path)
    (tmp_path / "shard-00002.safetensors").unlink()

    def other(keys):
        return {"logits": Teacher()(keys)["logits"] + 1}

    build_cache(tmp_path, rows, other, recipe)
    after = read_lines(tmp_path)
    assert after[:-1] == lines
    assert after[-1]["file"] == "shard-00002.safetensors"
    assert after[-1]["sha256"] != lines[2]["sha256"]
    assert verify_cache(tmp_path).passes


def test_the_same_shard_again_changes_nothing(tmp_path):
    rows, recipe = make_rows(), make_recipe()
    build_cache(tmp_path, rows, Teacher(), recipe, shard_rows=10)
    before = files_of(tmp_path)
    (tmp_path / "shard-00002.safetensors").unlink()
    build_cache(tmp_path, rows, Teacher(), recipe)
    assert files_of(tmp_path) == before


def test_what_is_missing_or_damaged_is_pending_in_order(tmp_path):
    rows, recipe = make_rows(), make_recipe()
    manifest = Manifest.begin(rows, recipe, 10)
    with assembling(tmp_path, lambda _: manifest, None) as cache:
        assert cache.pending == list(range(7))
    build_cache(tmp_path, rows, Teacher(), recipe)
    (tmp_path / "shard-00005.safetensors").write_bytes(b"")
    (tmp_path / "shard-00002.safetensors").unlink()
    with assembling(tmp_path, lambda _: manifest, None) as cache:
        assert cache.pending == [2, 5]


@pytest.mark.parametrize("name", ["ids-in-order", "ids-out-of-order", "truncated"])
def test_a_finished_cache_of_version_0_1_is_left_as_it_is(tmp_path, name):
    place, teacher = shutil.copytree(EARLIER / name, tmp_path / name), Teacher()
    before = files_of(place)
    build_cache(place, earlier_rows(name), teacher, earlier_recipe(name))
    assert files_of(place) == before
    assert not teacher.rows_seen


@pytest.mark.parametrize("name", ["ids-in-order", "ids-out-of-order", "truncated", "unfinished"])
def test_a_cache_of_version_0_1_that_needs_work_is_given_a_journal(tmp_path, name):
    place, teacher = shutil.copytree(EARLIER / name, tmp_path / name), Teacher()
    if name != "unfinished":
        (place / "shard-00001.safetensors").unlink()
    source = read_contents(place).manifest.model_source
    build_cache(place, earlier_rows(name), teacher, earlier_recipe(name), block_rows=2)
    assert len(teacher.rows_seen) == (6 if name == "unfinished" else 4)
    build_cache(
        tmp_path / "new",
        earlier_rows(name),
        Teacher(),
        earlier_recipe(name),
        shard_rows=4,
        block_rows=2,
        model_source=source,
    )
    found, new = files_of(place), files_of(tmp_path / "new")
    if name == "truncated":
        # Version 0.1 rounded log-probabilities in another order: its shard stays as it is, and the journal has its sum.
        assert found.keys() == new.keys()
        assert found["shard-00000.safetensors"] == files_of(EARLIER / name)["shard-00000.safetensors"]
        assert found["shard-00001.safetensors"] == new["shard-00001.safetensors"]
    else:
        assert found == new


def test_killed_before_the_new_manifest_the_old_one_still_counts(tmp_path, monkeypatch):
    place = shutil.copytree(EARLIER / "unfinished", tmp_path / "cache")
    before = files_of(place)

    def killed(self, directory):
        raise KeyboardInterrupt

    monkeypatch.setattr(Manifest, "publish", killed)
    with pytest.raises(KeyboardInterrupt):
        build_cache(place, earlier_rows("unfinished"), Teacher(), earlier_recipe("unfinished"))
    monkeypatch.undo()
    assert cache_info(place).rows_written == 4
    assert files_of(place)["manifest.json"] == before["manifest.json"]
    build_cache(place, earlier_rows("unfinished"), Teacher(), earlier_recipe("unfinished"))
    assert verify_cache(place).passes


def test_what_a_manifest_says_of_its_source_may_be_added_later(tmp_path):
    place = shutil.copytree(EARLIER / "ids-out-of-order", tmp_path / "cache")
    build_cache(place, earlier_rows("x"), Teacher(), earlier_recipe("x"), model_source="files")
    contents = read_contents(place)
    assert contents.manifest.model_source == "files"
    assert contents.complete
    build_cache(place, earlier_rows("x"), Teacher(), earlier_recipe("x"))
    assert read_contents(place) == contents, "not to know the source takes nothing back"


def test_a_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "shards.jsonl").write_text("")
    with pytest.raises(InputError, match=r"expected an empty directory or a teacher cache, found shards\.jsonl"):
        build_cache(tmp_path, make_rows(), Teacher(), make_recipe())
