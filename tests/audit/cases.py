"""Students, a teacher and samples for the tests of audits."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tpkd.audit.run import audit_files
from tpkd.audit.sources import Sources
from tpkd.data.dataset import Dataset

CLASS_NAMES = ("cat", "dog", "fox", "owl", "eel")
HOSTILE = "</script><img src=x onerror=\"console.log('ran')\">\u2028\u202e"


@dataclass(frozen=True)
class Case:
    """Logits of a few students and their teacher, saved as files."""

    folder: Path
    students: tuple[np.ndarray, ...]
    teacher: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]

    def dataset(self, kind="text"):
        """Samples whose texts or images say which row they are."""
        rows, named = len(self.labels), np.arange(len(self.labels))
        inputs = tuple(f"text of row {row}" for row in range(rows))
        if kind == "image":
            inputs = np.zeros((rows, 8, 8, 1), np.uint8) + (named % 17).astype(np.uint8)[:, None, None, None]
        return Dataset("toy", "test", kind, inputs, self.labels, named + 1000, self.class_names)

    def sources(self, kind="text", students=None):
        files = [self.folder / f"student-{number}.npy" for number in range(len(self.students))]
        dataset = None if kind is None else self.dataset(kind)
        chosen = tuple(files[:students])
        return Sources(chosen, self.folder / "teacher.npy", self.folder / "labels.npy", dataset, self.class_names)

    def audit(self, out=None, kind="text", students=None, **options):
        return audit_files(self.sources(kind, students), out or self.folder / "audit", **options)


def make_case(folder, *, rows=150, students=2, class_names=CLASS_NAMES, seed=0):
    """Students that are surer from one to the next, with a teacher that is right more often than they are."""
    random, num_classes = np.random.default_rng(seed), len(class_names)
    labels = random.integers(num_classes, size=rows)
    truth = np.eye(num_classes)[labels]
    teacher = random.normal(size=(rows, num_classes)) + 3 * truth
    made = tuple(
        (1 + number) * (random.normal(size=(rows, num_classes)) + 2 * truth) + 0.3 * teacher
        for number in range(students)
    )
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "teacher.npy", teacher)
    np.save(folder / "labels.npy", labels)
    for number, logits in enumerate(made):
        np.save(folder / f"student-{number}.npy", logits)
    return Case(folder, made, teacher, labels, tuple(class_names))
