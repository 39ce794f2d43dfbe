import pytest

from teacher.cache.journals import edit_journal, read_lines
from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.errors import InputError
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.contents import damaged_index, damaged_shards, read_contents
from tpkd.teacher.cache.parts import Part


def flip_last_byte(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_damage_is_found_shard_by_shard(tmp_path):
    build_cache(tmp_path, make_rows(), Teacher(), make_recipe(), shard_rows=10)
    contents = read_contents(tmp_path)
    assert damaged_shards(contents) == {}
    flip_last_byte(tmp_path / contents.shards[2].file)
    (tmp_path / contents.shards[4].file).unlink()
    found = damaged_shards(contents)
    assert found.keys() == {2, 4}
    assert "expected SHA-256" in found[2]
    assert damaged_index(contents) is None


def test_damage_of_a_part_is_found_by_the_number_of_the_shard(tmp_path):
    build_cache(tmp_path, make_rows(), Teacher(), make_recipe(), shard_rows=10, part=Part(2, 2))
    contents = read_contents(tmp_path)
    assert [entry.file for entry in contents.shards] == [f"shard-0000{number}.safetensors" for number in (3, 4, 5, 6)]
    assert (contents.rows_written, contents.complete) == (39, True)
    flip_last_byte(tmp_path / "shard-00005.safetensors")
    assert damaged_shards(contents).keys() == {5}


def test_a_cache_with_keys_in_any_order_is_complete_with_its_index(tmp_path):
    build_cache(tmp_path, make_rows(69, 1), Teacher(), make_recipe(), shard_rows=10)
    contents = read_contents(tmp_path)
    assert contents.complete
    assert contents.runs is None
    assert contents.bytes == sum(path.stat().st_size for path in tmp_path.glob("shard-*"))
    edit_journal(tmp_path, lambda lines: lines.pop())
    contents = read_contents(tmp_path)
    assert (contents.all_shards, contents.needs_index, contents.complete) == (True, True, False)
    assert contents.missing == "expected index.safetensors, found none"


def test_a_later_line_about_a_shard_counts(tmp_path):
    build_cache(tmp_path, make_rows(), Teacher(), make_recipe(), shard_rows=10)
    lines = read_lines(tmp_path)
    edit_journal(tmp_path, lambda lines: lines.append({**lines[2], "bytes": 7}))
    contents = read_contents(tmp_path)
    assert [entry.bytes for entry in contents.shards] == [*(line["bytes"] for line in lines[:2]), 7] + [
        line["bytes"] for line in lines[3:]
    ]
    edit_journal(tmp_path, lambda lines: lines.insert(1, {**lines[2]}))
    with pytest.raises(InputError, match=r"line 2: file: expected shard-00001\.safetensors, found 'shard-00002"):
        read_contents(tmp_path)
