"""Files for a diagnosis: students that have learned their labels more or less, and a teacher that knows more."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Files:
    """Paths of what was written, and the arrays themselves."""

    student: Path
    teacher: Path
    labels: Path
    z: np.ndarray
    zt: np.ndarray
    y: np.ndarray

    def arguments(self):
        return [str(self.student), "--teacher", str(self.teacher), "--labels", str(self.labels)]


def make_arrays(examples=120, num_classes=6, seed=0, lead=6.0, never_blocked=False):
    """Logits of students with every degree of confidence."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, num_classes, examples)
    zt = rng.normal(size=(examples, num_classes)) * 1.5
    zt[np.arange(examples), y] += 1.0
    z = 0.5 * zt + rng.normal(size=(examples, num_classes))
    z[np.arange(examples), y] += lead * rng.random(examples)
    if never_blocked:
        z[np.arange(examples), y] = z.min(-1) - 3.0
    return z.astype(np.float32), zt.astype(np.float32), y


def write_files(directory, **settings):
    z, zt, y = make_arrays(**settings)
    files = Files(directory / "student.npy", directory / "teacher.npy", directory / "labels.npy", z, zt, y)
    for path, array in ((files.student, z), (files.teacher, zt), (files.labels, y)):
        np.save(path, array)
    return files
