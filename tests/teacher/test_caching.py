"""Building a cache from a configuration: once, again where it is damaged, and what is said about the teacher."""

import shutil

import pytest
import torch

from tpkd.errors import InputError
from tpkd.teacher import caching, network
from tpkd.teacher.cache.merge import merge_parts
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.read import open_cache
from training.tiny import make_config, plain_config, with_cache
from training.two_teachers import cached, entry, two_teachers

SMALL = {"limit": 40, "epochs": 1, "views": {"num_views": 2, "pad": 1, "scale": 16}}


def test_a_finished_cache_is_found_finished_without_the_teacher(tmp_path, monkeypatch):
    config = with_cache(tmp_path, **SMALL)
    builds, build = [], network.build_model
    monkeypatch.setattr(network, "build_model", lambda spec: builds.append(spec) or build(spec))
    told = []
    caching.build(config, on_progress=told.append)
    assert not builds
    assert [(progress.rows_done, progress.rows_total) for progress in told] == [(80, 80)]
    shard = tmp_path / "cache" / "shard-00000.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    caching.build(config)  # what is damaged is computed again, for which the teacher is needed
    assert len(builds) == 1
    assert shard.read_bytes() == content


def test_a_network_or_a_place_that_is_not_there_is_refused(tmp_path):
    config = make_config(tmp_path, **SMALL)
    with pytest.raises(InputError, match="network: expected teacher or initial, found 'student'"):
        caching.plan_cache(config, "student")
    with pytest.raises(InputError, match=r"initial\.cache: missing, and the cache needs a directory"):
        caching.plan_cache(make_config(tmp_path, **SMALL, initial={}), "initial")


def test_the_teacher_is_as_often_right_in_what_was_kept_of_it(tmp_path):
    said = {}
    for top_k in ("null", 1, 3):
        notes = []
        config = make_config(tmp_path, [f"teacher.top_k={top_k}", f"teacher.cache={tmp_path / str(top_k)}"], **SMALL)
        caching.build(config, on_note=notes.append)
        said[top_k] = [note for note in notes if "cached rows" in note]
        kept = [note for note in notes if note.startswith("Each row keeps: ")]
        assert len(kept) == (0 if top_k == "null" else 1)
    assert said[1] == said[3] == said["null"] != []


def test_the_start_of_the_student_is_never_truncated(tmp_path):
    config = make_config(tmp_path, ["teacher.top_k=3", f"initial.cache={tmp_path / 'initial'}"], **SMALL)
    assert caching.plan_cache(config).recipe.top_k == 3
    caching.build(config, "initial")
    assert open_cache(tmp_path / "initial").top_k is None


def test_classes_are_mapped_before_the_largest_are_kept(tmp_path):
    """The teacher's first class is none of the data's: it takes no place among the kept, and no share of the rest."""
    names = tmp_path / "names.txt"
    names.write_text("\n".join(["other", *map(str, range(10))]))
    teacher = plain_config(tmp_path)["teacher"] | {
        "weights": None,
        "untrained": True,
        "class_names": str(names),
        "cache_dtype": "float32",
    }
    kept, whole = (
        make_config(tmp_path, teacher=teacher | {"cache": str(tmp_path / name)} | changes, **SMALL)
        for name, changes in (("top", {"top_k": 4}), ("all", {}))
    )
    for config in (kept, whole):
        caching.build(config)
    opened, full = open_cache(tmp_path / "top"), open_cache(tmp_path / "all")
    keys = (opened.sample_ids, opened.view_ids)
    expected = full.read(*keys).log_softmax(-1).topk(4)
    found = opened.read(*keys)
    assert found.indices.tolist() == expected.indices.tolist()
    torch.testing.assert_close(found.log_probs, expected.values, rtol=0, atol=1e-5)


def test_a_truncated_cache_is_verified_with_its_teacher(tmp_path):
    config = with_cache(tmp_path, ["teacher.top_k=3"], **SMALL)
    report = caching.verify(config.teacher.cache, config, sample=20)
    assert (report.passes, report.rows_recomputed) == (True, 20)
    with pytest.raises(InputError, match="something else: top_k: expected nothing, found 3"):
        caching.verify(config.teacher.cache, make_config(tmp_path, **SMALL))


def test_every_teacher_gets_its_cache_and_notes_name_them(tmp_path):
    config, told, notes = cached(tmp_path, **SMALL), [], []
    built = caching.build_all(config, on_progress=told.append, on_note=notes.append)
    assert [path.name for path in built] == ["first-cache", "second-cache"]
    assert [progress.rows_done for progress in told if progress.rows_done == progress.rows_total] == [80, 80]
    for key in ("teachers.0", "teachers.1"):
        assert any(note.startswith(f"{key}: The teacher is right on") and "cached rows" in note for note in notes)
    first, second = (open_cache(path) for path in built)
    keys = first.sample_ids, first.view_ids
    assert not torch.equal(first.read(*keys), second.read(*keys))
    assert caching.build_all(config) == built


def test_a_teacher_without_a_model_has_its_cache_already(tmp_path):
    config = cached(tmp_path, **SMALL)
    caching.build_all(config)
    teachers = [{"cache": config.teachers[0].cache}, config.teachers[1].model_dump()]
    assert [path.name for path in caching.build_all(two_teachers(tmp_path, teachers=teachers, **SMALL))] == [
        "second-cache"
    ]
    nothing = two_teachers(tmp_path, teachers=[{"cache": teacher.cache} for teacher in config.teachers], **SMALL)
    with pytest.raises(InputError, match="teachers: expected a model of at least one, found none"):
        caching.build_all(nothing)
    with pytest.raises(
        InputError, match=r"teachers\.0\.cache: missing, and every teacher needs a directory of its own"
    ):
        caching.build_all(two_teachers(tmp_path, **SMALL))


def test_a_cache_is_verified_with_the_teacher_that_it_belongs_to(tmp_path):
    config = cached(tmp_path, **SMALL)
    for directory in caching.build_all(config):
        assert caching.verify(directory, config, sample=5).rows_recomputed == 5
    with pytest.raises(
        InputError, match=r"expected the cache of one of the teachers, found that they have .*first-cache"
    ):
        caching.verify(tmp_path, config)


def test_what_is_wrong_with_one_teacher_is_said_under_its_key(tmp_path):
    config = cached(tmp_path, **SMALL)
    broken = entry(tmp_path / "none.safetensors", cache=str(tmp_path / "third-cache"))
    with pytest.raises(InputError, match=r"^teachers\.1: .*none\.safetensors"):
        caching.build_all(two_teachers(tmp_path, teachers=[config.teachers[0].model_dump(), broken], **SMALL))


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != ".lock"}


@pytest.mark.parametrize("top_k", ["null", 3])
def test_parts_of_a_configuration_merge_to_its_cache(tmp_path, monkeypatch, top_k):
    overrides = [f"teacher.top_k={top_k}"]
    whole = with_cache(tmp_path / "one", overrides, **SMALL)
    config = make_config(tmp_path / "one", [*overrides, f"teacher.cache={tmp_path / 'cache'}"], **SMALL)
    size = 20 * caching.row_bytes(open_cache(whole.teacher.cache).recipe)
    caching.build(
        make_config(tmp_path / "one", [*overrides, f"teacher.cache={tmp_path / 'cut'}"], **SMALL), shard_bytes=size
    )
    notes = []
    parts = [caching.build(config, part=Part(number, 2), shard_bytes=size, on_note=notes.append) for number in (1, 2)]
    assert parts == [tmp_path / f"cache.part-{number}-of-2" for number in (1, 2)]
    assert not any("cached rows" in note for note in notes), "a part is not the whole"
    merged = merge_parts(parts)
    assert merged == tmp_path / "cache"
    assert files_of(merged) == files_of(tmp_path / "cut")
    builds, build = [], network.build_model
    monkeypatch.setattr(network, "build_model", lambda spec: builds.append(spec) or build(spec))
    told = []
    assert caching.build(config, part=Part(2, 2), on_progress=told.append) == parts[1]
    assert [(progress.rows_done, progress.rows_total) for progress in told] == [(40, 40)]
    caching.build(config)
    assert not builds, "neither a finished part nor a merged cache needs the teacher"
    report = caching.verify(parts[0], config, sample=5)
    assert (report.passes, report.rows_recomputed) == (True, 5)


def test_a_part_in_the_place_of_another_is_refused(tmp_path):
    config = make_config(tmp_path, **SMALL)
    first = caching.build(config, part=Part(1, 2), shard_bytes=1000)
    shutil.copytree(first, tmp_path / "cache.part-2-of-2")
    with pytest.raises(InputError, match="holds another cache: expected part 2 of 2, found part 1 of 2"):
        caching.build(config, part=Part(2, 2), shard_bytes=1000)


def test_a_run_learns_the_same_from_a_merged_cache(tmp_path):
    from tpkd.training.loop import train

    config = with_cache(tmp_path, **SMALL)
    first = train(config)
    merged = make_config(
        tmp_path, [f"teacher.cache={tmp_path / 'other'}", "output=" + str(tmp_path / "again")], **SMALL
    )
    size = 7 * caching.row_bytes(open_cache(config.teacher.cache).recipe)
    parts = [caching.build(merged, part=Part(number, 3), shard_bytes=size) for number in (1, 2, 3)]
    merge_parts(parts)
    second = train(merged)
    assert first.student_fingerprint == second.student_fingerprint
    assert first.teacher_fingerprint == second.teacher_fingerprint
