"""What a diagnosis costs: time over that of float32 log_softmax on the same two files, and peak memory.

`python -m benchmarks.diagnose [examples] [classes]`
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tpkd.arrays import open_array
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.run import diagnose_files

SLOWEST = 12.0
"""A diagnosis may take at most this many times as long as log_softmax over its two files."""
MOST_MEMORY = 600.0
"""Megabytes that the whole command may have resident at its peak, page and JSON included."""

CHILD = """
import sys
from tpkd.cli.main import app
app(sys.argv[1:], standalone_mode=False)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def write_files(directory: Path, examples: int, num_classes: int) -> tuple[Path, Path, Path]:
    """A student that has learned its labels and a teacher that is less sure, written in blocks."""
    rng = np.random.default_rng(0)
    student, teacher, labels = (directory / f"{name}.npy" for name in ("student", "teacher", "labels"))
    y = rng.integers(0, num_classes, examples)
    np.save(labels, y)
    zt = np.lib.format.open_memmap(teacher, mode="w+", dtype=np.float32, shape=(examples, num_classes))
    z = np.lib.format.open_memmap(student, mode="w+", dtype=np.float32, shape=(examples, num_classes))
    for start in range(0, examples, 65536):
        rows = y[start : start + 65536]
        block = 2 * rng.standard_normal((len(rows), num_classes), dtype=np.float32)
        block[np.arange(len(rows)), rows] += 5
        zt[start : start + 65536] = block
        block = block / 2 + rng.standard_normal(block.shape, dtype=np.float32)
        block[np.arange(len(rows)), rows] += 6
        z[start : start + 65536] = block
    zt.flush()
    z.flush()
    return student, teacher, labels


def elapsed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def log_softmax_files(*paths: Path) -> None:
    """The baseline: read each file in blocks and take its log_softmax in float32."""
    for path in paths:
        for block in open_array(path).blocks(4096):
            block.log_softmax(-1)


def time_ratio(student: Path, teacher: Path, labels: Path, repeats: int = 5) -> tuple[float, float, float]:
    """Seconds of both and the ratio of their medians, taken in turns so that both see the same machine."""
    baseline, diagnosis = [], []
    for _ in range(repeats):
        baseline += [elapsed(lambda: log_softmax_files(student, teacher)) for _ in range(2)]
        diagnosis.append(elapsed(lambda: diagnose_files(open_inputs([student], teacher, labels))))
        baseline += [elapsed(lambda: log_softmax_files(student, teacher)) for _ in range(2)]
    slow, fast = statistics.median(diagnosis), statistics.median(baseline)
    return slow, fast, slow / fast


def peak_memory(student: Path, teacher: Path, labels: Path) -> float:
    """Megabytes resident at the peak of the command in a process of its own, with page and JSON."""
    outputs = ["--json", str(student.parent / "out.json"), "--html", str(student.parent / "out.html")]
    arguments = ["diagnose", str(student), "--teacher", str(teacher), "--labels", str(labels), *outputs]
    command = [sys.executable, "-c", CHILD, *arguments]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(result.stdout.splitlines()[-1]) / 1024


def rows(examples: int = 1_000_000, num_classes: int = 100) -> list[tuple[str, float, float]]:
    """(what, measured, most) for each promise."""
    with tempfile.TemporaryDirectory() as directory:
        files = write_files(Path(directory), examples, num_classes)
        memory = peak_memory(*files)
        ratio = time_ratio(*files)[2]
    what = f"diagnosis of {examples:,} × {num_classes}"
    return [(f"{what}, time / log_softmax", ratio, SLOWEST), (f"{what}, peak memory in MB", memory, MOST_MEMORY)]


def main() -> None:
    examples, num_classes = (int(text) for text in (*sys.argv[1:], *("1000000", "100")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as directory:
        files = write_files(Path(directory), examples, num_classes)
        memory = peak_memory(*files)
        slow, fast, ratio = time_ratio(*files)
    verdicts = ("met" if ratio <= SLOWEST else "NOT met", "met" if memory <= MOST_MEMORY else "NOT met")
    print(f"| diagnose {examples:,} x {num_classes} float32 | found | allowed | |")
    print("|---|---|---|---|")
    print(f"| time / log_softmax ({slow:.2f} s / {fast:.3f} s) | {ratio:.1f} | {SLOWEST:.0f} | {verdicts[0]} |")
    print(f"| peak resident memory, MB | {memory:.0f} | {MOST_MEMORY:.0f} | {verdicts[1]} |")


if __name__ == "__main__":
    main()
