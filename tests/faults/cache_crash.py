"""A process that builds caches in children of its own and kills them: `cache_crash.py JOBS.json`, tests on its path.

A job with `parts` merges these directories instead of building.

A child is forked from a process with one thread that has loaded everything, so a kill costs milliseconds.
"""

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import safetensors.numpy  # noqa: F401  (the first child would load it anew in every build)

from teacher.cache.toys import Teacher, make_recipe, make_rows
from tpkd.teacher.cache import build as builder
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.merge import merge_parts


def build(job):
    """One build; the key of every row that enters the model is appended to the job's log."""
    teacher = Teacher()
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def forward(keys):
        os.write(log, "".join(f"{sample} {view}\n" for sample, view in keys.tolist()).encode())
        time.sleep(job.get("delay", 0))
        return teacher(keys)

    if "parts" in job:
        merge_parts(job["parts"], job["directory"])
        return
    recipe = make_recipe(top_k=job["top_k"])
    builder.DRAFT_ROWS = job.get("draft_rows", builder.DRAFT_ROWS)
    rows, shard_rows = make_rows(*job["rows"]), job.get("shard_rows", 10)
    build_cache(job["directory"], rows, forward, recipe, shard_rows=shard_rows, block_rows=5)


def die_at_call(name, number, moment):
    """Kill this process right before or after its n-th call of a function of `os`."""
    call, seen = getattr(os, name), []

    def deadly(*arguments, **settings):
        seen.append(arguments)
        if len(seen) == number and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = call(*arguments, **settings)
        if len(seen) == number and moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(os, name, deadly)


def start(job):
    child = os.fork()
    if child:
        return child
    if "die_at" in job:
        die_at_call(*job["die_at"])
    status = 1
    try:
        build(job)
        status = 0
    except ValueError as error:
        Path(job["log"] + f".{os.getpid()}.error").write_text(str(error))
        status = 2
    finally:
        os._exit(status)


def build_seconds(job):
    """How long the build takes now, so that a kill hits inside it on a busy machine as well."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        os.waitpid(start({**job, "directory": directory, "log": os.devnull}), 0)
    return time.monotonic() - begin


def run(job):
    """Run a job in as many children as it asks for; returns how each ended, negative for a signal."""
    kill_after = job["kill_at"] * build_seconds(job) if "kill_at" in job else None
    children = [start(job) for _ in range(job.get("builders", 1))]
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(children[0], signal.SIGKILL)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


if __name__ == "__main__":
    jobs = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps([run(job) for job in jobs]))
