"""A run that was killed in the middle of an epoch ends bit for bit where an uninterrupted one does."""

import signal

import torch

from integrations.lightning.crash import run
from integrations.lightning.tiny import run_script


def test_kill_and_resume_end_where_the_uninterrupted_run_ends(tmp_path):
    done = run_script("crash.py", tmp_path / "parts")
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    left = torch.load(tmp_path / "parts" / "last.ckpt", weights_only=True)
    assert left["epoch"] == 1
    assert left["global_step"] == 4, "killed at the fifth step, after the checkpoint of the second epoch"

    whole = run(tmp_path / "whole")
    parts = run(tmp_path / "parts", resume=tmp_path / "parts" / "last.ckpt")
    assert parts["global_step"] == whole["global_step"] == 6
    assert any(not torch.equal(each, whole["state_dict"][name]) for name, each in left["state_dict"].items())
    for name, each in whole["state_dict"].items():
        assert torch.equal(each, parts["state_dict"][name])
    for state, other in zip(*(each["optimizer_states"][0]["state"].values() for each in (whole, parts)), strict=True):
        assert all(torch.equal(state[name], other[name]) for name in state)
