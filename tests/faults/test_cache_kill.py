"""A build that is killed, run twice at once, or fails to write: what is on disk stays true, and little is lost."""

import errno
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import tpkd
from teacher.cache.toys import Teacher, assert_true_rows, make_recipe, make_rows
from tpkd.errors import InputError
from tpkd.teacher.cache import build as builder
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.merge import merge_parts
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.verify import cache_info, verify_cache

TESTS = Path(__file__).parent.parent
KILLS = 20 if os.environ.get("TPKD_FAULTS") == "full" else 2
NUM_ROWS = 120
SHARD_ROWS = 10
SHARDS = NUM_ROWS // SHARD_ROWS
DELAY = 0.002


def crash(jobs, tmp_path):
    """How the children of each job ended."""
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(jobs))
    script = TESTS / "faults" / "cache_crash.py"
    # The same tpkd as here, also where another one is installed.
    path_of_modules = os.pathsep.join([str(TESTS), str(Path(tpkd.__file__).parents[1])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path_of_modules}
    done = subprocess.run([sys.executable, script, path], check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)


def forwarded(log):
    return Path(log).read_text().split("\n")[:-1] if Path(log).exists() else []


def visible(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != ".lock"}


@pytest.fixture(scope="module", params=[None, 2], ids=["all", "top 2"])
def top_k(request):
    """All logits, or the largest two classes: a kill does the same to both."""
    return request.param


@pytest.fixture(scope="module")
def sizes(top_k):
    """Samples and views: of keys that arithmetic finds, and of keys that need the file of an index."""
    return (40, 3) if top_k is None else (120, 1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, top_k, sizes):
    directory = tmp_path_factory.mktemp("whole")
    recipe = make_recipe(top_k=top_k)
    build_cache(directory, make_rows(*sizes), Teacher(), recipe, shard_rows=SHARD_ROWS, block_rows=5)
    assert ("index.safetensors" in visible(directory)) == (top_k is not None)
    return visible(directory)


def assert_readable_and_resumes(directory, log, whole, top_k, sizes, most=NUM_ROWS + SHARD_ROWS):
    """Whatever a killed build left is either nothing or a sound part; finishing it wastes at most one shard."""
    rows, teacher = make_rows(*sizes), Teacher()
    if (directory / "manifest.json").exists():
        part = open_cache(directory, partial=True)
        samples, views = part.sample_ids, part.view_ids
        assert_true_rows(part.read(samples, views), samples, views)
    build_cache(directory, rows, teacher, make_recipe(top_k=top_k), shard_rows=SHARD_ROWS, block_rows=5)
    assert len(forwarded(log)) + len(teacher.rows_seen) <= most
    assert visible(directory) == whole, "the same bytes as a build that was not killed, and no stray file"
    assert verify_cache(directory).passes


def test_kills_at_random_instants(tmp_path, whole, top_k, sizes):
    generator = random.Random(0)
    jobs = [
        {
            "directory": str(tmp_path / f"cache-{number}"),
            "log": str(tmp_path / f"log-{number}"),
            "rows": sizes,
            "top_k": top_k,
            "delay": DELAY,
            "kill_at": 0.9 * generator.random(),
        }
        for number in range(KILLS)
    ]
    ends = crash(jobs, tmp_path)
    assert all(end in ([-9], [0]) for end in ends)
    for job in jobs:
        assert_readable_and_resumes(Path(job["directory"]), job["log"], whole, top_k, sizes)
    print(f"cache: {ends.count([-9])} builds killed at random instants, all resumed")


FULL = os.environ.get("TPKD_FAULTS") == "full"
# A build renames the manifest, then each shard, and at last the index, if there is one. It syncs a file and its
# directory for each of these, and the journal for each line, for the first line with its directory.
CALLS = {
    "replace": (*range(1, 14),) if FULL else (1, 2, 3, 13),
    "fsync": (*range(1, 40),) if FULL else (5, 6, 7, 9, 39),
}


def test_kills_around_every_kind_of_rename_and_sync(tmp_path, whole, top_k, sizes):
    points = [(call, number, moment) for call in CALLS for number in CALLS[call] for moment in ("before", "after")]
    jobs = [
        {
            "directory": str(tmp_path / "-".join(map(str, point))),
            "log": str(tmp_path / f"log-{'-'.join(map(str, point))}"),
            "rows": sizes,
            "top_k": top_k,
            "die_at": point,
        }
        for point in points
    ]
    assert crash(jobs, tmp_path) == [[-9]] * len(jobs)
    for job, (call, number, moment) in zip(jobs, points, strict=True):
        directory = Path(job["directory"])
        if call == "replace" and (number, moment) != (1, "before"):
            # Only a line of the journal makes a shard count: at the rename of a shard, those before it have theirs.
            assert cache_info(directory).rows_written == SHARD_ROWS * max(0, number - 2)
        assert_readable_and_resumes(directory, job["log"], whole, top_k, sizes)
    print(f"cache: {len(jobs)} builds killed around a rename or a sync, all resumed")


def test_a_line_of_the_journal_that_was_torn_is_dropped_and_its_shard_built_again(tmp_path, whole, top_k, sizes):
    """A power cut may leave any part of the last line, or zeros in the place of it."""
    for number, (lines, tail) in enumerate([(0, 1), (0, 40), (3, 1), (3, -2), (3, -1), (11, 40), (12, 0), (12, 15)]):
        directory = tmp_path / str(number)
        directory.mkdir()
        for name, data in whole.items():
            (directory / name).write_bytes(data)
        kept = whole["shards.jsonl"].splitlines(keepends=True)
        torn = (*kept, b'{"schema":1,"file":"x')[lines][:tail] if tail else b""
        (directory / "shards.jsonl").write_bytes(b"".join(kept[:lines]) + torn + (b"\0" * 30 if number % 2 else b""))
        if lines < len(kept):
            with pytest.raises(InputError, match=r"expected 120 rows, found .* written|expected index\.safetensors"):
                open_cache(directory)
        else:  # everything is named, and what follows is nothing
            assert len(open_cache(directory)) == NUM_ROWS
        assert_readable_and_resumes(
            directory, tmp_path / "no log", whole, top_k, sizes, most=(SHARDS - lines) * SHARD_ROWS
        )


def test_a_chain_of_kills_makes_progress(tmp_path, whole, top_k, sizes):
    directory, log = tmp_path / "cache", tmp_path / "log"
    # Each run dies after its second shard is named: at the third rename, the first run has the manifest's before.
    job = {"directory": str(directory), "log": str(log), "rows": sizes, "top_k": top_k}
    jobs = [{**job, "die_at": ["replace", 4, "before"]}, *[{**job, "die_at": ["replace", 3, "before"]}] * 4]
    assert crash(jobs, tmp_path) == [[-9]] * 5
    assert cache_info(directory).rows_written == 10 * SHARD_ROWS
    teacher = Teacher()
    build_cache(directory, make_rows(*sizes), teacher, make_recipe(top_k=top_k), block_rows=5)
    assert len(teacher.rows_seen) == 2 * SHARD_ROWS
    assert visible(directory) == whole


def test_of_builders_that_start_together_one_writes(tmp_path, whole, top_k, sizes):
    directory, log = tmp_path / "cache", tmp_path / "log"
    job = {
        "directory": str(directory),
        "log": str(log),
        "rows": sizes,
        "top_k": top_k,
        "delay": 0.02,
        "builders": 4,
    }
    (ends,) = crash([job], tmp_path)
    # One that a busy machine starts late finds the work done: it is not refused, and writes nothing.
    assert 0 in ends
    assert set(ends) <= {0, 2}
    for error in tmp_path.glob("log.*.error"):
        assert "another build (process " in error.read_text()
    assert len(forwarded(log)) == len(set(forwarded(log))) == 120
    assert visible(directory) == whole


def test_a_second_builder_is_refused_with_the_process_of_the_first(tmp_path):
    refusals = []

    def forward(keys):
        with pytest.raises(InputError) as refusal:
            build_cache(tmp_path, make_rows(), Teacher(), make_recipe())
        refusals.append(str(refusal.value))
        return Teacher()(keys)

    build_cache(tmp_path, make_rows(), forward, make_recipe())
    message = f"{tmp_path}: another build (process {os.getpid()}) is writing here; wait for it or stop it"
    assert refusals == [message] * len(refusals)
    assert verify_cache(tmp_path).passes


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_a_writer_that_fails_says_where_and_leaves_what_was_there(
    tmp_path, monkeypatch, whole, top_k, sizes, call, code
):
    true_call, calls, recipe = getattr(os, call), [], make_recipe(top_k=top_k)

    def failing(*arguments, **keywords):
        calls.append(arguments)
        # A build publishes the manifest and shard 0, makes a journal with one line, and publishes shard 1. Each of
        # these syncs a file and its directory.
        if len(calls) == {"replace": 3, "fsync": 7}[call]:
            raise OSError(code, os.strerror(code))
        return true_call(*arguments, **keywords)

    monkeypatch.setattr(os, call, failing)
    with pytest.raises(InputError, match=rf"shard-00001\.safetensors: cannot be written: {os.strerror(code)}"):
        build_cache(tmp_path, make_rows(*sizes), Teacher(), recipe, shard_rows=SHARD_ROWS, block_rows=5)
    monkeypatch.undo()
    assert visible(tmp_path).keys() == {"manifest.json", "shards.jsonl", "shard-00000.safetensors"}
    assert len(open_cache(tmp_path, partial=True)) == SHARD_ROWS
    teacher = Teacher()
    build_cache(tmp_path, make_rows(*sizes), teacher, recipe, block_rows=5)
    assert len(teacher.rows_seen) == 110
    assert visible(tmp_path) == whole


def test_a_kill_in_a_long_shard_loses_a_piece_of_it(tmp_path, monkeypatch):
    """The rows of a shard are kept while it is built; here a piece has 10 rows, and a forward pass 5."""
    monkeypatch.setattr(builder, "DRAFT_ROWS", 10)
    recipe, sizes = make_recipe(), (40, 3)
    build_cache(tmp_path / "whole", make_rows(*sizes), Teacher(), recipe, shard_rows=60, block_rows=5)
    # The manifest syncs twice, then each of five pieces once; the shard and the first line sync twice each.
    points = [("fsync", number, moment) for number in (3, 5, 8, 10, 12) for moment in ("before", "after")]
    jobs = [
        {
            "directory": str(tmp_path / "-".join(map(str, point))),
            "log": str(tmp_path / f"log-{'-'.join(map(str, point))}"),
            "rows": sizes,
            "top_k": None,
            "shard_rows": 60,
            "draft_rows": 10,
            "die_at": point,
        }
        for point in points
    ]
    assert crash(jobs, tmp_path) == [[-9]] * len(jobs)
    for job in jobs:
        teacher, directory = Teacher(), Path(job["directory"])
        build_cache(directory, make_rows(*sizes), teacher, recipe, block_rows=5)
        assert len(forwarded(job["log"])) + len(teacher.rows_seen) <= NUM_ROWS + 10 + 5
        assert visible(directory) == visible(tmp_path / "whole")


def parts_of(place, sizes, top_k, total=3):
    parts = [Part(number, total) for number in range(1, total + 1)]
    for part in parts:
        rows, recipe = make_rows(*sizes), make_recipe(top_k=top_k)
        build_cache(part.place(place), rows, Teacher(), recipe, shard_rows=SHARD_ROWS, block_rows=5, part=part)
    return [part.place(place) for part in parts]


def test_a_merge_that_is_killed_leaves_nothing_that_opens_and_goes_on(tmp_path, whole, top_k, sizes):
    parts = parts_of(tmp_path / "cache", sizes, top_k)
    before = [visible(part) for part in parts]
    # A merge renames the manifest and each shard, and syncs like a build, but no file of a shard: it is a link.
    calls = {"replace": (1, 2, 7, 13), "fsync": (3, 4, 5, 6, 26), "link": (1, 12)}
    points = [(call, number, moment) for call in calls for number in calls[call] for moment in ("before", "after")]
    jobs = [
        {
            "directory": str(tmp_path / "-".join(map(str, point))),
            "log": str(tmp_path / "log"),
            "parts": [str(part) for part in parts],
            "die_at": point,
        }
        for point in points
    ]
    assert crash(jobs, tmp_path) == [[-9]] * len(jobs)
    for job in jobs:
        directory = Path(job["directory"])
        with pytest.raises(InputError, match=r"found no manifest|found .* written|expected index") as refusal:
            open_cache(directory)
        assert "\n" not in str(refusal.value)
        assert merge_parts(parts, directory) == directory
        assert visible(directory) == whole
    assert [visible(part) for part in parts] == before


def test_a_part_that_is_killed_goes_on_and_merges_to_the_same_bytes(tmp_path, whole, top_k, sizes):
    parts = parts_of(tmp_path / "cache", sizes, top_k)
    second = parts[1]
    lines = (second / "shards.jsonl").read_bytes().splitlines(keepends=True)
    (second / "shards.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:50])  # and its last two shards not named
    with pytest.raises(InputError, match="part 2 of 3: expected 40 rows, found 20 written and the last line of"):
        merge_parts(parts)
    teacher = Teacher()
    rows, recipe = make_rows(*sizes), make_recipe(top_k=top_k)
    build_cache(second, rows, teacher, recipe, block_rows=5, part=Part(2, 3))
    assert len(teacher.rows_seen) == 2 * SHARD_ROWS
    assert visible(merge_parts(parts)) == whole
