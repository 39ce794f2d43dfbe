"""Time two versions of the losses in turns: `python -m benchmarks.versions OTHER_CHECKOUT [--only TEXT] [--rounds N]`.

The other checkout is a directory with `src/` and `benchmarks/` of another commit, with its kernel built:

    git worktree add ../before COMMIT && (cd ../before && python setup.py build_ext --inplace)

Each version runs in a process of its own, and they take turns at every case. What is printed is the ratio of their
times, this version's over the other's, of lower quartiles and of minima: what the machine does meanwhile meets both.
But not where its threads and its memory come to lie: a case can be a third slower in one of the processes for seconds,
in either of them. `OMP_NUM_THREADS=1` leaves out the first; to believe a ratio, see it in several runs.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
BUDGET = 0.05
"""Seconds of a turn, at least one call."""


def cases() -> Iterator[tuple[str, Callable[[], None]]]:
    """Name and call of everything that is timed, made of the code that this process imports."""
    from benchmarks import beyond, losses
    from benchmarks.run import compile_losses

    for dtype in losses.DTYPES:
        for rows, num_classes in losses.SHAPES:
            small = compile_losses() if rows * num_classes <= 2**15 else {}  # larger ones call the kernel
            for kind in losses.SCALES:
                case = losses.Case(rows, num_classes, kind, dtype)
                inputs = case.make()
                named = {"TPKD": losses.EAGER["TPKD"], "tensor code": losses.SLOW["TPKD as tensor code"]}
                named |= {name: loss for name, loss in small.items() if name.startswith("TPKD")}
                if (rows, num_classes) in beyond.SHAPES:
                    others = beyond.losses_of(case, inputs)
                    named |= {name: loss for name, loss in others.items() if name not in ("CE", "TPKD")}
                for name, loss in named.items():
                    yield f"{name} | {rows} x {num_classes} {kind} {dtype}", losses.training_call(loss, inputs)


def work(only: str) -> None:
    """Answer each line of input with the times of one turn, one case after the other."""
    for name, call in cases():
        if only not in name:
            continue
        call()
        print(json.dumps(name), flush=True)
        for line in sys.stdin:
            if line.strip() == "next":
                break
            times, end = [], time.perf_counter() + BUDGET
            while not times or time.perf_counter() < end:
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
            print(json.dumps(times), flush=True)


def _worker(checkout: Path, only: str) -> "subprocess.Popen[str]":
    path = os.pathsep.join([str(checkout / "src"), str(checkout)])
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", "--only", only]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, cwd=checkout, env={**os.environ, "PYTHONPATH": path}, text=True, **pipes)


def _ask(worker: "subprocess.Popen[str]", line: str | None = None) -> object:
    assert worker.stdin is not None
    assert worker.stdout is not None
    if line is not None:
        worker.stdin.write(line + "\n")
        worker.stdin.flush()
    answer = worker.stdout.readline()
    return json.loads(answer) if answer else None


def compare(other: Path, only: str, rounds: int) -> None:
    """Print one line per case."""
    workers = (_worker(HERE, only), _worker(other.resolve(), only))
    name, twin = (_ask(worker) for worker in workers)
    while name is not None and name == twin:
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(rounds):
            for which in (turn % 2, 1 - turn % 2):  # either one first in turn
                times[which].extend(_ask(workers[which], "go"))  # type: ignore[arg-type]
        here, there = (sorted(taken) for taken in times)
        quartile = here[len(here) // 4] / there[len(there) // 4]
        print(f"{quartile:6.3f} {here[0] / there[0]:6.3f} {1e3 * here[0]:9.3f} ms  {name}", flush=True)
        name, twin = (_ask(worker, "next") for worker in workers)
    assert name == twin, (name, twin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="?", help="the checkout to compare with")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.only)
    elif arguments.other is None:
        parser.error("other: expected a checkout to compare with")
    else:
        compare(arguments.other, arguments.only, arguments.rounds)


if __name__ == "__main__":
    main()
