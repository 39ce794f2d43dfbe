"""Parts together are the cache that one build writes, byte for byte, and nothing else is taken for them."""

import errno
import os
import shutil

import numpy as np
import pytest

from teacher.cache.earlier_caches import EARLIER, earlier_recipe, earlier_rows
from teacher.cache.toys import Teacher, assert_true_rows, make_recipe, make_rows
from tpkd.errors import InputError
from tpkd.teacher.cache import build as builder
from tpkd.teacher.cache.build import BuildProgress, build_cache
from tpkd.teacher.cache.merge import merge_parts
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.verify import cache_info, verify_cache

SIZES = {"by arithmetic": (23, 3), "by the index": (69, 1)}


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != ".lock"}


def build_part(place, number, total, sizes=(23, 3), **settings):
    """A part of the toy cache; returns its directory."""
    directory, recipe = Part(number, total).place(place), make_recipe(**settings)
    build_cache(directory, make_rows(*sizes), Teacher(), recipe, shard_rows=10, block_rows=4, part=Part(number, total))
    return directory


def build_parts(place, total, sizes=(23, 3), **settings):
    return [build_part(place, number, total, sizes, **settings) for number in range(1, total + 1)]


@pytest.mark.parametrize("top_k", [None, 2])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("total", [1, 2, 4, 7])
def test_any_number_of_parts_is_the_cache_of_one_build(tmp_path, total, sizes, top_k):
    rows, recipe = make_rows(*sizes), make_recipe(top_k=top_k)
    build_cache(tmp_path / "one", rows, Teacher(), recipe, shard_rows=10, block_rows=4)
    parts = build_parts(tmp_path / "cache", total, sizes, top_k=top_k)
    assert merge_parts(np.random.default_rng(total).permutation([str(part) for part in parts])) == tmp_path / "cache"
    assert files_of(tmp_path / "cache") == files_of(tmp_path / "one")
    cache = open_cache(tmp_path / "cache", expected=recipe)
    assert_true_rows(cache.read(rows.sample_ids, rows.view_ids), rows.sample_ids, rows.view_ids)


def test_each_row_is_computed_once_and_each_part_says_how_far_it_is(tmp_path):
    teacher, told = Teacher(), []
    for number in (1, 2, 3):
        build_cache(
            tmp_path / str(number),
            make_rows(),
            teacher,
            make_recipe(),
            shard_rows=10,
            block_rows=100,
            part=Part(number, 3),
            on_progress=told.append,
        )
    assert len(set(teacher.rows_seen)) == len(teacher.rows_seen) == 69
    row = 8 + 8 + 1 + 2 * 5
    assert [progress for progress in told if not progress.rows_done] == [
        BuildProgress(0, rows, rows * row, None) for rows in (20, 20, 29)
    ]


def test_a_part_is_a_part(tmp_path):
    directory, rows = build_part(tmp_path / "cache", 2, 3), make_rows()
    info = cache_info(directory)
    assert (info.part, info.rows, info.rows_written, info.shards, info.complete) == ("part 2 of 3", 20, 20, 2, True)
    report = verify_cache(directory, forward=Teacher(), rows=rows, sample=100)
    assert (report.passes, report.rows_recomputed) == (True, 20)
    with pytest.raises(InputError, match=r"expected a cache, found part 2 of 3; `tpkd cache merge` joins the parts"):
        open_cache(directory)
    opened = open_cache(directory, partial=True)
    keys = rows.sample_ids[20:40], rows.view_ids[20:40]
    assert_true_rows(opened.read(*keys), *keys)
    with pytest.raises(InputError, match="no such row is written"):
        opened.read(rows.sample_ids[:1], rows.view_ids[:1])
    with pytest.raises(InputError, match="holds another cache: expected a whole cache, found part 2 of 3"):
        build_cache(directory, rows, Teacher(), make_recipe())
    with pytest.raises(InputError, match="holds another cache: expected part 1 of 3, found part 2 of 3"):
        build_cache(directory, rows, Teacher(), make_recipe(), part=Part(1, 3))


def test_more_parts_than_shards_are_refused_with_a_size_that_makes_as_many(tmp_path):
    rows, recipe = make_rows(), make_recipe()
    with pytest.raises(
        InputError, match=r"N at most 1, the number of shards, found 2/5; .* --shard-bytes (\d+)"
    ) as refusal:
        build_cache(tmp_path / "part", rows, Teacher(), recipe, part=Part(2, 5))
    assert not (tmp_path / "part").exists()
    size = int(str(refusal.value).split()[-1])
    build_cache(tmp_path / "part", rows, Teacher(), recipe, part=Part(2, 5), shard_bytes=size)
    assert cache_info(tmp_path / "part").shards >= 1


def unfinished(place, total):
    directory = Part(total, total).place(place)

    def stop(keys):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_cache(directory, make_rows(), stop, make_recipe(), shard_rows=10, part=Part(total, total))
    return directory


def flipped(directory):
    path = sorted(directory.glob("shard-*"))[0]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return directory


WRONG = {
    "a part is missing": (lambda place: build_parts(place, 3)[::2], "expected all 3 parts, found no part 2$"),
    "several are": (lambda place: build_parts(place, 4)[:1], "expected all 4 parts, found no part 2, 3, 4$"),
    "a part twice": (
        lambda place: [*build_parts(place, 2), build_part(place.with_name("again"), 1, 2)],
        "again.part-1-of-2: expected every part once, found part 1 of 2 in .*cache.part-1-of-2 too",
    ),
    "the same directory twice": (lambda place: build_parts(place, 2)[:1] * 2, "expected every part once"),
    "another model": (
        lambda place: [build_part(place, 1, 2), build_part(place, 2, 2, model_fingerprint="other")],
        "part-2-of-2: expected a part of the same cache as .*: model_fingerprint: expected 'weights', found 'other'",
    ),
    "other rows": (
        lambda place: [build_part(place, 1, 2), build_part(place, 2, 2, (22, 3))],
        r"part-2-of-2: expected a part of the same cache as .*: rows: expected keys \w+… of 69 rows, found",
    ),
    "cut into more parts": (
        lambda place: [build_part(place, 1, 2), build_part(place, 2, 3)],
        "part: expected one of 2, found part 2 of 3",
    ),
    "a whole cache": (lambda place: [build_part(place, 1, 2), whole(place)], "expected a part, .* found a whole cache"),
    "an unfinished part": (
        lambda place: [build_part(place, 1, 2), unfinished(place, 2)],
        "part-2-of-2: part 2 of 2: expected 39 rows, found 0 written; build this part again",
    ),
    "a damaged part": (
        lambda place: [build_part(place, 1, 2), flipped(build_part(place, 2, 2))],
        r"part-2-of-2/shard-00003\.safetensors: expected SHA-256 .*; build this part again",
    ),
    "no part": (
        lambda place: [place.with_name("nothing")],
        "nothing: expected a teacher cache, found no manifest.json",
    ),
    "nothing": (lambda place: [], "parts: expected all parts of a cache, found none"),
}


def whole(place):
    build_cache(place.with_name("whole"), make_rows(), Teacher(), make_recipe(), shard_rows=10)
    return place.with_name("whole")


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_all_parts_of_one_cache_is_refused_by_name_and_nothing_written(tmp_path, name):
    make, match = WRONG[name]
    parts = make(tmp_path / "cache")
    with pytest.raises(InputError, match=match) as refusal:
        merge_parts(parts, tmp_path / "merged")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "merged").exists()


def test_parts_with_other_shards_are_refused(tmp_path):
    first = build_part(tmp_path / "cache", 1, 2)
    second = Part(2, 2).place(tmp_path / "cache")
    build_cache(second, make_rows(), Teacher(), make_recipe(), shard_rows=20, part=Part(2, 2))
    with pytest.raises(InputError, match="shard_rows: expected 10, found 20"):
        merge_parts([first, second])
    parts = build_parts(tmp_path / "other", 2)
    build_cache(tmp_path / "out", make_rows(), Teacher(), make_recipe(), shard_rows=20)
    with pytest.raises(InputError, match=r"out: expected shards of 10 rows as in .*, found 20; take another directory"):
        merge_parts(parts, tmp_path / "out")


def test_the_place_has_to_be_said_where_names_do_not(tmp_path):
    parts = build_parts(tmp_path / "cache", 2)
    parts[1] = parts[1].rename(tmp_path / "second")
    with pytest.raises(InputError, match="--out: missing, and the names of the parts do not say where"):
        merge_parts(parts)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"expected an empty directory or a teacher cache, found thesis\.tex"):
        merge_parts(parts, tmp_path / "full")
    with pytest.raises(InputError, match="holds another cache: expected a whole cache, found part 1 of 2"):
        merge_parts(parts, parts[0])
    assert verify_cache(merge_parts(parts, tmp_path / "out")).passes


@pytest.mark.parametrize("linked", [True, False])
def test_shards_are_links_where_the_file_system_has_them_and_copies_elsewhere(tmp_path, monkeypatch, linked):
    parts = build_parts(tmp_path / "cache", 2)
    if not linked:

        def refuse(*_):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

        monkeypatch.setattr(os, "link", refuse)
    before = [files_of(part) for part in parts]
    merged = merge_parts(parts)
    assert [files_of(part) for part in parts] == before, "parts are left as they were"
    counts = {path.stat().st_nlink for path in merged.glob("shard-*")}
    assert counts == ({2} if linked else {1})
    for part in parts:
        shutil.rmtree(part)
    assert verify_cache(merged).passes


def test_a_merge_again_takes_what_is_missing_or_damaged(tmp_path):
    parts = build_parts(tmp_path / "cache", 2, (69, 1))
    merged, told = merge_parts(parts), []
    before = files_of(merged)
    (merged / "shard-00001.safetensors").unlink()
    (merged / "shard-00004.safetensors").unlink()
    (merged / "shard-00004.safetensors").write_bytes(b"damaged")
    (merged / "index.safetensors").unlink()
    merge_parts(parts, on_shards=lambda done, total: told.append((done, total)))
    assert files_of(merged) == before
    assert told == [(5, 7), (6, 7), (7, 7)]


def test_an_unfinished_build_may_be_finished_by_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(builder, "DRAFT_ROWS", 4)
    rows, recipe = make_rows(), make_recipe()
    build_cache(tmp_path / "one", rows, Teacher(), recipe, shard_rows=10, block_rows=4)
    teacher = Teacher()

    def forward(keys):
        if len(teacher.rows_seen) > 24:
            raise KeyboardInterrupt
        return teacher(keys)

    with pytest.raises(KeyboardInterrupt):
        build_cache(tmp_path / "cache", rows, forward, recipe, shard_rows=10, block_rows=4)
    merge_parts(build_parts(tmp_path / "cache", 2))
    assert files_of(tmp_path / "cache") == files_of(tmp_path / "one")


def test_an_unfinished_cache_of_version_0_1_may_be_finished_by_parts(tmp_path):
    place, recipe = shutil.copytree(EARLIER / "unfinished", tmp_path / "cache"), earlier_recipe("unfinished")
    rows = earlier_rows("unfinished")
    parts = [Part(number, 2).place(place) for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        build_cache(part, rows, Teacher(), recipe, shard_rows=4, block_rows=2, part=Part(number, 2))
    merge_parts(parts)
    build_cache(tmp_path / "one", rows, Teacher(), recipe, shard_rows=4, block_rows=2)
    assert files_of(place) == files_of(tmp_path / "one")
