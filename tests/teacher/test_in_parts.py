"""Several workers build the cache that one builds, byte for byte; one that fails is named and built again."""

import hashlib

import pytest

from tpkd.errors import InputError
from tpkd.executors.jobs import JobEvent
from tpkd.executors.local import LocalExecutor
from tpkd.teacher import caching
from tpkd.teacher.in_parts import build_in_parts
from training.tiny import make_config


def contents(directory):
    names = [path for path in sorted(directory.iterdir()) if path.name != ".lock"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in names}


def on_processes(work, directory):
    return LocalExecutor(work, processes=2)


class Here:
    """An executor without processes; fails the jobs that it is told to."""

    def __init__(self, work, failing):
        self.work, self._failing, self._jobs = work, failing, {}

    def submit(self, job, payload):
        self._jobs[job] = payload

    def events(self):
        for job, payload in self._jobs.items():
            if job in self._failing:
                yield JobEvent("failed", job, problem="the node is gone")
            else:
                self.work(payload, lambda done, total: None)
                yield JobEvent("finished", job)

    def cancel(self):
        pass


def test_workers_build_what_one_builds(tmp_path):
    config = make_config(tmp_path)
    one = caching.build(config, shard_bytes=40_000)
    expected = contents(one)
    assert len(expected) > 4
    one.rename(tmp_path / "one")
    (two,) = build_in_parts(config, "teacher", on_processes, workers=2, shard_bytes=40_000)
    assert contents(two) == expected
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("cache")] == ["cache"]


def test_a_part_that_fails_is_named_and_built_again(tmp_path):
    config = make_config(tmp_path)
    with pytest.raises(InputError, match=r"part-2: the node is gone; the same command builds what is missing"):
        build_in_parts(config, "teacher", lambda work, _: Here(work, {"part-2"}), workers=3, shard_bytes=20_000)
    assert not (tmp_path / "cache").exists()
    seen = []
    (built,) = build_in_parts(
        config, "teacher", lambda work, _: Here(work, ()), workers=3, shard_bytes=20_000, on_event=seen.append
    )
    assert [event.kind for event in seen] == ["finished"] * 3
    expected = contents(built)
    built.rename(tmp_path / "kept")
    assert contents(caching.build(config, shard_bytes=20_000)) == expected


def test_a_store_and_a_missing_directory_are_refused(tmp_path):
    config = make_config(tmp_path)
    away = config.model_copy(update={"teacher": config.teacher.model_copy(update={"cache": "s3://b/c"})})
    with pytest.raises(InputError, match="can be read but not written"):
        build_in_parts(away, "teacher", on_processes, workers=2)
    with pytest.raises(InputError, match=r"initial\.cache: missing"):
        build_in_parts(config, "initial", on_processes, workers=2)
