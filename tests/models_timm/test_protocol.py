"""The paper's vision protocol with its real models, random weights, one step at 224 × 224 pixels."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tpkd.config.loading import load_config
from tpkd.models.classifier import extract_features
from tpkd.models.heads import fit_probe
from tpkd.teacher import caching
from tpkd.teacher.network import build_teacher
from tpkd.training.run import assemble, start_accelerator
from tpkd.training.step import take_step

CONFIG = Path(__file__).parents[2] / "configs" / "paper-vision.yaml"
CLASSES = 4
# At 1,000 classes 73,764,840 and 58,678,336; VOLO has a second head, over its tokens.
STUDENT_BACKBONE, TEACHER_BACKBONE = 73_764_840 - 1000 * 1025, 58_678_336 - 2 * 1000 * 513


@pytest.fixture
def data(tmp_path):
    generator = np.random.default_rng(0)
    parts = {"class_names": np.array([f"class {index}" for index in range(CLASSES)])}
    for split in ("train", "test"):
        parts[f"{split}_images"] = generator.integers(0, 256, (CLASSES, 32, 32, 3), dtype=np.uint8)
        parts[f"{split}_labels"] = np.arange(CLASSES)
    np.savez(tmp_path / "cifar100.npz", **parts)
    return tmp_path


def backbone_size(model):
    return sum(value.numel() for name, value in model.named_parameters() if name not in model.head_names)


def test_volo_d2_teaches_pit_b_one_step(data, tmp_path):
    """Probe, cache of all eight views and one optimiser step in micro-batches, as `cache build` and `train` do them."""
    overrides = [
        f"data.root={data}",
        *(
            "student.options={}",
            "teacher.weights=null",
            "teacher.untrained=true",
        ),  # random in place of published and fine-tuned weights
        f"student.probe_file={tmp_path / 'probe.safetensors'}",
        f"teacher.cache={tmp_path / 'cache'}",
        *("batch_size=2", "micro_batch_size=1"),
        *("precision=fp32", "workers=0"),  # half precision needs an accelerator
    ]
    config = load_config(CONFIG, overrides)
    caching.build(config)
    run = assemble(config, start_accelerator(config), tmp_path)
    assert backbone_size(run.student) == STUDENT_BACKBONE
    assert backbone_size(build_teacher(config, run.dataset).model) == TEACHER_BACKBONE

    plain = run.preparation.inputs(run.dataset, range(CLASSES))
    features = extract_features(run.student, [plain])
    probe = fit_probe(features, torch.arange(CLASSES), CLASSES, C=0.01)
    torch.testing.assert_close(run.student.classifier.weight.data, probe.weight.data)

    samples = run.batches[0]
    assert samples.inputs.shape == (2, 3, 224, 224)
    assert run.teacher.cache.num_views == 8
    before = run.student.classifier.weight.detach().clone()
    outcome = take_step(run, 1, samples)
    assert 0 < outcome.gradient_norm < float("inf")
    assert not run.student.classifier.weight.equal(before)
