"""What timm saves is the student's, and a run that was killed ends where it would have ended."""

import signal
import subprocess
import sys
from pathlib import Path

import torch
from timm.utils import CheckpointSaver

from integrations_timm.crash import EPOCHS, run, teacher
from integrations_timm.tiny import images, labels, network
from tpkd.integrations.timm import DistillationTask


def tensors(value, path=""):
    """Every tensor of a checkpoint, by where it stands."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return {where: found for key, each in items for where, found in tensors(each, f"{path}/{key}").items()}


def read(directory):
    return torch.load(Path(directory) / "last.pth.tar", weights_only=True)


def test_a_checkpoint_holds_no_tensor_of_the_teacher(tmp_path):
    student, taught_by = network(0, dtype=torch.float32), teacher()
    task = DistillationTask(student, taught_by, teacher_mean=(0.1, 0.2, 0.3))
    task.setup_ema()
    optimizer = torch.optim.AdamW(task.get_trainable_module().parameters())
    task(images(4, dtype=torch.float32), labels(4))["loss"].backward()
    optimizer.step()
    CheckpointSaver(task.get_eval_model(), optimizer, task=task, checkpoint_dir=str(tmp_path)).save_checkpoint(0)
    saved = read(tmp_path)
    assert saved["state_dict"].keys() == saved["state_dict_ema"].keys() == student.state_dict().keys()
    assert len(saved["optimizer"]["state"]) == len(list(student.parameters()))
    found = tensors(saved)
    assert len(found) > 4 * len(list(student.parameters()))
    # Ones and zeros of a fresh network's scales and counters are everybody's.
    own = {value.numpy().tobytes() for value in taught_by.state_dict().values() if len(value.unique()) > 1}
    assert not [where for where, value in found.items() if value.numpy().tobytes() in own]
    assert (tmp_path / "last.pth.tar").stat().st_size < 6 * sum(value.nbytes for value in student.state_dict().values())


def test_killed_and_continued_it_ends_where_it_would_have_ended(tmp_path):
    killed, unbroken = tmp_path / "killed", tmp_path / "unbroken"
    for directory in (killed, unbroken):
        directory.mkdir()
    command = [sys.executable, str(Path(__file__).with_name("crash.py")), str(killed)]
    child = subprocess.run(command, capture_output=True, text=True)
    assert child.returncode == -signal.SIGKILL, child.stderr[-3000:]
    assert read(killed)["epoch"] == 1
    run(killed, resume=True)
    run(unbroken)
    first, second = read(killed), read(unbroken)
    assert first["epoch"] == second["epoch"] == EPOCHS - 1
    one, other = tensors(first), tensors(second)
    assert one.keys() == other.keys()
    assert [where for where, value in one.items() if not value.equal(other[where])] == []
    assert first["optimizer"]["param_groups"] == second["optimizer"]["param_groups"]
