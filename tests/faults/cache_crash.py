"""A process that builds caches in children of its own and kills them: `cache_crash.py JOBS.json`, tests on its path.

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
from tpkd.teacher.cache.build import build_cache


def build(job):
    """One build; the key of every row that enters the model is appended to the job's log."""
    teacher = Teacher()
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def forward(keys):
        os.write(log, "".join(f"{sample} {view}\n" for sample, view in keys.tolist()).encode())
        time.sleep(job.get("delay", 0))
        return teacher(keys)

    recipe = make_recipe(top_k=job["top_k"])
    build_cache(job["directory"], make_rows(*job["rows"]), forward, recipe, shard_rows=10, block_rows=5)


def die_at_rename(number, moment):
    """Kill this process right before or after its n-th rename: manifest, shard, manifest, shard, …"""
    replace, seen = os.replace, []

    def deadly(source, target):
        seen.append(target)
        if len(seen) == number and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)
        if len(seen) == number and moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = deadly


def start(job):
    child = os.fork()
    if child:
        return child
    if "rename" in job:
        die_at_rename(*job["rename"])
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
