import pytest
import torch

from tpkd.errors import InputError
from tpkd.training.checkpoint import Checkpoint
from tpkd.training.run import assemble, start_accelerator
from tpkd.training.state import Progress, capture, restore
from tpkd.training.step import take_step
from training.tiny import make_config, online


@pytest.fixture
def run(tmp_path):
    config = online(make_config(tmp_path))
    return assemble(config, start_accelerator(config), tmp_path)


def taken(run, **progress):
    groups, values = capture(run, Progress(**progress))
    copies = {group: {name: value.clone() for name, value in tensors.items()} for group, tensors in groups.items()}
    return Checkpoint(progress["step"], copies, values)


def test_a_restored_run_takes_the_same_next_step(run):
    take_step(run, 1, run.batches[0])
    checkpoint = taken(run, step=1, skipped_steps=2, seconds=3.5, metrics_bytes=4, metrics_sha256="5")
    take_step(run, 2, run.batches[1])
    expected = {name: value.clone() for name, value in run.student.state_dict().items()}
    progress = restore(run, checkpoint)
    assert (progress.step, progress.skipped_steps, progress.seconds, progress.processes) == (1, 2, 3.5, 1)
    assert (progress.metrics_bytes, progress.metrics_sha256) == (4, "5")
    take_step(run, 2, run.batches[1])
    assert all(value.equal(expected[name]) for name, value in run.student.state_dict().items())


def test_a_checkpoint_of_another_teacher_or_shape_is_refused(run):
    checkpoint = taken(run, step=1)
    checkpoint.values["teacher"] = "another"
    with pytest.raises(InputError, match=r"checkpoint of step 1: teacher: expected .*, found 'another'"):
        restore(run, checkpoint)
    checkpoint = taken(run, step=1)
    name = next(iter(checkpoint.groups["model"]))
    checkpoint.groups["model"][name] = torch.zeros(1)
    with pytest.raises(InputError, match="checkpoint of step 1: does not fit this run"):
        restore(run, checkpoint)
