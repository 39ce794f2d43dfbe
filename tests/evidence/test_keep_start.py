"""A probe is kept as a teacher that `teacher.weights` and `teacher.test_logits` take."""

import pytest
import torch
from safetensors.torch import load_file
from tools.keep_start import keep_start

from tpkd.config.loading import config_yaml, resolve_config
from tpkd.data.configured import load_data
from tpkd.teacher.network import build_teacher

STUDENT = {"model": "builtin:mlp", "options": {"hidden": [12]}, "head": "probe"}


def test_the_start_becomes_a_teacher_of_other_samples(tmp_path):
    plain = {
        "output": str(tmp_path / "teacher"),
        "data": {"name": "digits", "validation": 0.1, "except_per_class": 20},
        "views": {"scale": 16},
        "student": STUDENT,
        "objective": "ce",
        "optimizer": {"name": "sgd", "learning_rate": 0.1},
        "epochs": 1,
    }
    path = tmp_path / "teacher.yaml"
    path.write_text(config_yaml(resolve_config(plain)))
    accuracies = keep_start(str(path), ["student.options.hidden=[16]"])
    assert min(accuracies["test"], accuracies["validation"]) > 0.5  # ten classes
    teacher = {
        "model": "builtin:mlp",
        "options": {"hidden": [16]},
        "weights": f"{tmp_path}/teacher/student.safetensors",
    }
    run = resolve_config(plain | {"teacher": teacher})
    test = load_data(run, "test")
    network = build_teacher(run, test)
    kept = load_file(tmp_path / "teacher" / "test-logits.safetensors")
    images = torch.from_numpy(test.inputs).permute(0, 3, 1, 2).float() / 16
    torch.testing.assert_close(network(images), kept["logits"], rtol=1e-4, atol=1e-4)
    assert kept["labels"].tolist() == test.labels.tolist()
    validation = load_file(tmp_path / "teacher" / "validation-logits.safetensors")
    right = validation["logits"].argmax(-1) == validation["labels"]
    assert right.double().mean().item() == pytest.approx(accuracies["validation"])
