"""Every example of the README runs, and what it names and counts is true; test_blocks.py reads its commands."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from docs.hooks.blocks import COLUMNS, run_command
from torch import nn
from transformers import TrainingArguments

from tpkd.figures.illustrations import draw_illustrations
from tpkd.integrations.transformers import DistillationTrainer
from tpkd.objectives import names

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_python_blocks_run_in_order(capsys):
    namespace = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)
    printed = capsys.readouterr().out
    assert "imitation is blocked on" in printed
    assert "nats of conditional knowledge" in printed
    assert namespace["student_logits"].grad.abs().sum() > 0


def applied(diff):
    """The program that a diff leaves."""
    return "\n".join(line[1:] for line in diff.splitlines() if not line.startswith("-"))


def test_the_loop_of_the_diff_runs():
    """Apply the diff: context and added lines are a program once student, teacher, loader and optimizer exist."""
    program = applied(blocks("diff")[0])
    student, teacher = nn.Linear(4, 5), nn.Linear(4, 5)
    before = student.weight.detach().clone()
    loader = [(torch.randn(8, 4), torch.randint(5, (8,))) for _ in range(3)]
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    exec(program, {"torch": torch, "loader": loader, "student": student, "teacher": teacher, "optimizer": optimizer})
    assert not torch.equal(student.weight, before)
    assert teacher.weight.grad is None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 5)

    def forward(self, inputs, labels=None):
        return {"logits": self.linear(inputs)}


def test_the_trainer_of_the_diff_trains(tmp_path):
    (_, diff) = blocks("diff")
    model, teacher = Net(), Net()
    before = model.linear.weight.detach().clone()
    namespace = {
        "DistillationTrainer": DistillationTrainer,
        "model": model,
        "teacher": teacher,
        "args": TrainingArguments(str(tmp_path), max_steps=2, report_to=[], use_cpu=True, disable_tqdm=True),
        "train_set": [{"inputs": torch.randn(4), "labels": label} for label in (0, 1, 2, 3, 4)],
    }
    exec(applied(diff), namespace)
    namespace["trainer"].train()
    assert not torch.equal(model.linear.weight, before)
    assert teacher.linear.weight.grad is None


def test_the_diagnosis_of_files_runs(tmp_path, monkeypatch):
    """Save the tensors of the examples under the names that the command takes."""
    monkeypatch.setenv("COLUMNS", COLUMNS)
    namespace = {}
    exec(blocks("python")[0], namespace)
    for file, name in (("student", "student_logits"), ("teacher", "teacher_logits"), ("labels", "labels")):
        np.save(tmp_path / f"{file}.npy", namespace[name].detach())
    (command,) = re.findall(r"^tpkd diagnose .*$", README, flags=re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    assert "blocked" in run_command(command)
    assert (tmp_path / "page.html").stat().st_size > 10_000


@pytest.mark.parametrize("target", sorted(set(re.findall(r"(?:^|`)make ([a-z-]+)", README, flags=re.MULTILINE))))
def test_named_make_targets_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def test_it_can_be_read_in_five_minutes():
    assert len(README.split()) < 1000  # 200 words a minute


def test_installing_comes_first_then_three_lines_then_cost_and_evidence():
    headings = re.findall(r"^## (.*)$", README, flags=re.MULTILINE)
    assert headings[:4] == ["Install", "Three lines", "What it costs", "What it showed"]


def test_the_cost_is_what_was_measured():
    """The shares of KD's time, and the largest without the kernel, are those of the committed measurement."""
    times = (ROOT / "benchmarks/RESULTS.md").read_text().split("## Time")[1].split("## ")[0]
    shares = [float(share) for share in re.findall(r"\*\*([\d.]+)\*\*", times)]
    (slowest,) = re.findall(r"Without the kernel, TPKD takes [\d.]+ to ([\d.]+) times", times)
    assert f"takes {min(shares):.2f} to {max(shares):.2f} times the time" in README
    assert f"Without the kernel it takes up to {float(slowest):.1f} times as long" in README


def test_the_list_of_objectives_names_every_one():
    listed = (ROOT / "docs/objectives/index.md").read_text()
    assert set(names()) <= set(re.findall(r"`([a-z-]+)`", listed))


def test_the_pictures_are_those_that_the_command_draws(tmp_path):
    pictures = sorted(path for path in (ROOT / "docs/figures").glob("*.svg") if not path.name.startswith("evidence-"))
    assert pictures
    assert all(path.name in README for path in pictures)
    draw_illustrations(tmp_path)
    for picture in pictures:
        assert (tmp_path / picture.name).read_bytes() == picture.read_bytes(), (
            f"tpkd figures draws another {picture.name}"
        )
