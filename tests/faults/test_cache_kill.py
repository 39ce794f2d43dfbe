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
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.verify import cache_info, verify_cache

TESTS = Path(__file__).parent.parent
KILLS = 20 if os.environ.get("TPKD_FAULTS") == "full" else 2
ROWS = (40, 3)
SHARD_ROWS = 10
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
def whole(tmp_path_factory, top_k):
    directory = tmp_path_factory.mktemp("whole")
    recipe = make_recipe(top_k=top_k)
    build_cache(directory, make_rows(*ROWS), Teacher(), recipe, shard_rows=SHARD_ROWS, block_rows=5)
    return visible(directory)


def assert_readable_and_resumes(directory, log, whole, top_k):
    """Whatever a killed build left is either nothing or a sound part; finishing it wastes at most one shard."""
    rows, teacher = make_rows(*ROWS), Teacher()
    if (directory / "manifest.json").exists():
        part = open_cache(directory, partial=True)
        samples, views = part.sample_ids, part.view_ids
        assert_true_rows(part.read(samples, views), samples, views)
    build_cache(directory, rows, teacher, make_recipe(top_k=top_k), shard_rows=SHARD_ROWS, block_rows=5)
    assert len(forwarded(log)) + len(teacher.rows_seen) <= len(rows) + SHARD_ROWS
    assert visible(directory) == whole, "the same bytes as a build that was not killed, and no stray file"
    assert verify_cache(directory).passes


def test_kills_at_random_instants(tmp_path, whole, top_k):
    generator = random.Random(0)
    jobs = [
        {
            "directory": str(tmp_path / f"cache-{number}"),
            "log": str(tmp_path / f"log-{number}"),
            "rows": ROWS,
            "top_k": top_k,
            "delay": DELAY,
            "kill_at": 0.9 * generator.random(),
        }
        for number in range(KILLS)
    ]
    ends = crash(jobs, tmp_path)
    assert all(end in ([-9], [0]) for end in ends)
    for job in jobs:
        assert_readable_and_resumes(Path(job["directory"]), job["log"], whole, top_k)
    print(f"cache: {ends.count([-9])} builds killed at random instants, all resumed")


def test_kills_around_every_kind_of_rename(tmp_path, whole, top_k):
    # The renames of a build are manifest, shard 0, manifest, shard 1, manifest, …
    points = [(number, moment) for number in (1, 2, 3, 4, 5, 24, 25) for moment in ("before", "after")]
    jobs = [
        {
            "directory": str(tmp_path / f"{n}-{m}"),
            "log": str(tmp_path / f"log-{n}-{m}"),
            "rows": ROWS,
            "top_k": top_k,
            "rename": [n, m],
        }
        for n, m in points
    ]
    assert crash(jobs, tmp_path) == [[-9]] * len(jobs)
    for job, (number, moment) in zip(jobs, points, strict=True):
        directory = Path(job["directory"])
        # Only a manifest makes a shard count: the third rename is the first that names one.
        published = (number if moment == "after" else number - 1) - 1
        if published >= 0:
            assert cache_info(directory).rows_written == SHARD_ROWS * (published // 2)
        assert_readable_and_resumes(directory, job["log"], whole, top_k)
    print(f"cache: {len(jobs)} builds killed around a rename, all resumed")


def test_a_chain_of_kills_makes_progress(tmp_path, whole, top_k):
    directory, log = tmp_path / "cache", tmp_path / "log"
    # Each run dies right after its second shard is named; the first run has one rename more, the empty manifest.
    job = {"directory": str(directory), "log": str(log), "rows": ROWS, "top_k": top_k}
    jobs = [{**job, "rename": [5, "after"]}, *[{**job, "rename": [4, "after"]}] * 5]
    assert crash(jobs, tmp_path) == [[-9]] * 6
    assert len(forwarded(log)) == 120
    teacher = Teacher()
    build_cache(directory, make_rows(*ROWS), teacher, make_recipe(top_k=top_k))
    assert not teacher.rows_seen
    assert visible(directory) == whole


def test_of_builders_that_start_together_one_writes(tmp_path, whole, top_k):
    directory, log = tmp_path / "cache", tmp_path / "log"
    job = {
        "directory": str(directory),
        "log": str(log),
        "rows": ROWS,
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
def test_a_writer_that_fails_says_where_and_leaves_what_was_there(tmp_path, monkeypatch, whole, top_k, call, code):
    true_call, calls, recipe = getattr(os, call), [], make_recipe(top_k=top_k)

    def failing(*arguments, **keywords):
        calls.append(arguments)
        # A build publishes the manifest, shard 0, the manifest, then shard 1; a publish syncs file and directory.
        if len(calls) == {"replace": 4, "fsync": 7}[call]:
            raise OSError(code, os.strerror(code))
        return true_call(*arguments, **keywords)

    monkeypatch.setattr(os, call, failing)
    with pytest.raises(InputError, match=rf"shard-00001\.safetensors: cannot be written: {os.strerror(code)}"):
        build_cache(tmp_path, make_rows(*ROWS), Teacher(), recipe, shard_rows=SHARD_ROWS, block_rows=5)
    monkeypatch.undo()
    assert visible(tmp_path).keys() == {"manifest.json", "shard-00000.safetensors"}
    assert len(open_cache(tmp_path, partial=True)) == SHARD_ROWS
    teacher = Teacher()
    build_cache(tmp_path, make_rows(*ROWS), teacher, recipe, block_rows=5)
    assert len(teacher.rows_seen) == 110
    assert visible(tmp_path) == whole
