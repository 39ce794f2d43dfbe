"""The paper's text protocol with its real models, random weights, one step at length 128."""

import json
from pathlib import Path

import pytest

from tpkd.config.loading import load_config
from tpkd.training.run import assemble, start_accelerator
from tpkd.training.step import take_step

CONFIG = Path(__file__).parents[2] / "configs" / "paper-text.yaml"
BERT_LARGE = "{layers: 24, hidden_size: 1024, heads: 16, pooling: pooler}"
STUDENT_PARAMETERS, TEACHER_PARAMETERS = 11_170_560, 335_141_888


@pytest.fixture
def data(tmp_path):
    for split in ("train", "test"):
        rows = ({"text": f"question {row} about money", "label": f"intent {row % 150:03d}"} for row in range(150))
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_bert_large_teaches_bert_mini_one_step(data, tmp_path):
    overrides = [
        f"data.name=jsonl:{data}",
        "objective=dto-kd",  # asks for everything: both networks' logits and four layers of each
        "student.model=builtin:bert",
        "teacher.model=builtin:bert",
        f"teacher.options={BERT_LARGE}",
        *("teacher.weights=null", "teacher.untrained=true", "teacher.cache=null"),
        *("batch_size=2", "micro_batch_size=1"),
    ]
    config = load_config(CONFIG, overrides)
    run = assemble(config, start_accelerator(config), tmp_path)
    assert sum(parameter.numel() for parameter in run.student.network.parameters()) == STUDENT_PARAMETERS
    teacher = run.teacher.model
    assert sum(parameter.numel() for parameter in teacher.network.parameters()) == TEACHER_PARAMETERS
    samples = run.batches[0]
    assert samples.inputs["input_ids"].shape == (2, 128)
    before = run.student.classifier.weight.detach().clone()
    outcome = take_step(run, 1, samples)
    assert outcome.losses.keys() == {"label", "distillation", "features"}
    assert 0 < outcome.gradient_norm < float("inf")
    assert not run.student.classifier.weight.equal(before)
    assert all(parameter.grad is None for parameter in teacher.parameters())
