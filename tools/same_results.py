"""Whether two checkouts compute the same bytes, for a change that must not change a number.

    python tools/same_results.py BEFORE AFTER [--without-demo] [--numbers]

Both run the same commands with the current interpreter: the report of every directory of BEFORE's results/, a
diagnosis of fixed files, the figures, more than 100 training steps of four objectives, and the demo. Every file that
they write is compared, apart from clocks and paths. Exit 0: all the same; 1: the files that differ are listed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

OBJECTIVES = ("ce", "kd", "dto-kd", "tpkd")
EPOCHS = 5
"""Of scikit-learn's digits in batches of 64: 113 steps."""
CLOCKS = re.compile(
    rb'"(seconds|[a-z_]+_seconds|time|metrics_bytes)": ?[-+.e\d]+|"metrics_sha256": ?"\w+"|'
    rb'<data value="[\d.e+-]+" data-path="[\w.]+\.(milli)?seconds">[\d.,]+</data>|'
    rb"one sample takes [\d.,]+ ms and [\d.,]+ ms|T\d\d:\d\d:\d\d\+00:00"
)
"""Seconds, and sizes and hashes of what seconds are written into."""
IGNORED = re.compile(r"(environment|networks)\.json|/tensorboard/|\.lock$|/state\.sha256$|/tables/(cost|networks)\.")
"""What is about the machine; the tensors of a checkpoint are compared, the hash over its clock is not."""


TEXTS = (".csv", ".html", ".log", ".md", ".svg", ".tex", ".txt")


def write_inputs(directory: Path) -> None:
    """A teacher, two students that know some labels better than it does, and their labels."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 7, 3000)
    teacher = generator.normal(size=(3000, 7)) + 2 * np.eye(7)[labels]
    np.save(directory / "labels.npy", labels)
    np.save(directory / "teacher.npy", teacher.astype(np.float32))
    for name, margin in (("young", 1.0), ("old", 4.0)):
        student = 0.5 * teacher + generator.normal(size=(3000, 7)) + margin * np.eye(7)[labels]
        np.save(directory / f"{name}.npy", student.astype(np.float32))


def run_everything(checkout: Path, results: Path, place: Path, *, demo: bool) -> None:
    """Run every command in `place` with the sources of one checkout."""
    place.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}

    def tpkd(*arguments: str) -> None:
        command = [sys.executable, "-m", "tpkd", *arguments]
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
        with (place / "terminal.txt").open("a") as log:
            log.write(f"$ tpkd {' '.join(arguments)}\n{done.stdout}exit {done.returncode}\n")
        if done.returncode not in (0, 1):
            sys.exit(f"{checkout}: tpkd {' '.join(arguments)} failed:\n{done.stderr}")

    write_inputs(place)
    shutil.copytree(results, place / "results", ignore=shutil.ignore_patterns("tables", "report.html"))
    shutil.copytree(checkout / "configs", place / "configs")
    for directory in sorted(path for path in (place / "results").iterdir() if path.is_dir()):
        tpkd("report", f"results/{directory.name}")
    files = ("young.npy", "old.npy", "--teacher", "teacher.npy", "--labels", "labels.npy")
    tpkd("diagnose", *files, "--json", "diagnosis.json", "--html", "diagnosis.html")
    tpkd("figures", "figures")
    tpkd("methods")
    tpkd("train", "configs/digits-teacher.yaml", "epochs=5")
    tpkd("cache", "build", "configs/digits.yaml")
    settings = ("snapshots=[]", f"epochs={EPOCHS}")
    for objective in OBJECTIVES:
        tpkd("train", "configs/digits.yaml", f"objective={objective}", *settings)
    if demo:
        tpkd("demo", "--out", "demo")


def contents(place: Path, numbers: bool) -> dict[str, bytes]:
    """Every file that was written, by name, without clocks; of texts the numbers alone, if asked."""
    found = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        written = path.is_file() and not name.startswith("configs/") and not IGNORED.search(f"/{name}")
        if written:
            found[name] = CLOCKS.sub(b"", path.read_bytes())
            if numbers and path.suffix in TEXTS:
                found[name] = b" ".join(re.findall(rb"\d[\d.]*", found[name]))
    return found


def main() -> None:
    """Compare two checkouts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--without-demo", action="store_true", help="leave out the demo, which takes minutes")
    parser.add_argument("--numbers", action="store_true", help="compare the numbers of texts, for a change of words")
    parser.add_argument("--keep", type=Path, help="a new directory for what both wrote")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place, found = options.keep or Path(temporary) / "runs", {}
        place.mkdir()
        for name in ("before", "after"):
            checkout, results = getattr(options, name).resolve(), options.before.resolve() / "results"
            run_everything(checkout, results, place.resolve() / name, demo=not options.without_demo)
            found[name] = contents(place / name, options.numbers)
    before, after = found["before"], found["after"]
    different = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    print(f"{len(before)} files of {options.before}, {len(after)} of {options.after}, {len(different)} differ")
    for name in different:
        print(f"  {name}")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
