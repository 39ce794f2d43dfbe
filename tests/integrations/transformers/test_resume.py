"""A run that was killed and continued ends where the uninterrupted run ends, bit for bit."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from integrations.transformers.crash import run
from integrations.transformers.tiny import CLASSES
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows


def assert_same_end(first, second):
    weights, others = (load_file(each / "checkpoint-12" / "model.safetensors") for each in (first, second))
    assert weights.keys() == others.keys()
    assert all(torch.equal(value, others[name]) for name, value in weights.items())
    moments, other_moments = (
        torch.load(each / "checkpoint-12" / "optimizer.pt", weights_only=True)["state"] for each in (first, second)
    )
    assert all(torch.equal(value, other_moments[key][name]) for key in moments for name, value in moments[key].items())


def entries(trainer):
    """What was logged for steps, but for the time it took."""
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def test_killed_and_continued_it_ends_where_it_would_have_ended(tmp_path):
    command = [sys.executable, str(Path(__file__).with_name("crash.py")), str(tmp_path / "killed")]
    killed = subprocess.run(command, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
    assert [each.name for each in (tmp_path / "killed").iterdir()] == ["checkpoint-4"]
    continued = run(tmp_path / "killed")
    continued.train(resume_from_checkpoint=True)
    unbroken = run(tmp_path / "unbroken")  # not earlier: its constructor seeds
    unbroken.train()
    assert_same_end(tmp_path / "killed", tmp_path / "unbroken")
    assert entries(continued) == entries(unbroken)
    assert len(entries(unbroken)) == 12


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 6:
            raise InterruptedError


def test_a_cache_is_read_on_where_it_was_left(tmp_path):
    answers = torch.randn(56, CLASSES, generator=torch.Generator().manual_seed(0))
    rows = CacheRows(np.arange(100, 156), np.zeros(56, int), lambda start, stop: answers[start:stop])
    recipe = CacheRecipe("weights", "data", {}, None, CLASSES)
    build_cache(tmp_path / "cache", rows, lambda rows: {"logits": rows}, recipe)
    with pytest.raises(InterruptedError):
        run(tmp_path / "stopped", tmp_path / "cache", callbacks=[Stop()]).train()
    run(tmp_path / "stopped", tmp_path / "cache").train(resume_from_checkpoint=True)
    run(tmp_path / "unbroken", tmp_path / "cache").train()
    assert_same_end(tmp_path / "stopped", tmp_path / "unbroken")
