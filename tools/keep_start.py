"""Keep the initial student of a configuration: `python tools/keep_start.py CONFIG [KEY=VALUE ...]`.

With `student.head: probe` that is a logistic regression on the features of a network that nobody trained further: a
teacher, or what students are compared with. Its weights and its logits on the test and validation parts go into the
`output` of the configuration, where `tpkd train` would put those of a trained student.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tpkd.config.loading import load_config
from tpkd.data.configured import load_data, load_validation
from tpkd.models.preparation import student_preparation
from tpkd.models.student import build_student
from tpkd.models.weights import save_weights
from tpkd.training.directory import STUDENT_NAME, TEST_LOGITS_NAME, VALIDATION_LOGITS_NAME
from tpkd.training.evaluation import evaluate
from tpkd.training.run import start_accelerator


def keep_start(path: str, overrides: Sequence[str] = ()) -> dict[str, float]:
    """Write weights and logits; returns the accuracy on each part that was evaluated."""
    config = load_config(path, overrides)
    directory = Path(config.directory)
    directory.mkdir(parents=True, exist_ok=True)
    dataset, accelerator = load_data(config, "train"), start_accelerator(config)
    student = build_student(config, dataset, directory=directory)
    accuracies = {}
    tested = load_data(config, "test") if config.evaluation.test else None
    parts = {TEST_LOGITS_NAME: tested, VALIDATION_LOGITS_NAME: load_validation(config)}
    for name, part in parts.items():
        if part is not None:
            found = evaluate(student, part, student_preparation(config, part), accelerator, config)
            accuracies[part.split] = found.accuracy
            found.publish(directory / name, part.class_names)
    save_weights(student, directory / STUDENT_NAME, dataset.class_names)
    return accuracies


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python tools/keep_start.py CONFIG [KEY=VALUE ...]")
    for part, accuracy in keep_start(sys.argv[1], sys.argv[2:]).items():
        print(f"{accuracy:.2%} of the {part} samples")
