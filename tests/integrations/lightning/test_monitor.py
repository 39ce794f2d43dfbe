"""The callback logs what `observe` says of the logits of a step, over all its micro-batches."""

import csv

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader

from integrations.lightning.tiny import QUIET, Student, data, fit, network
from tpkd.errors import InputError
from tpkd.integrations.lightning import MonitorCallback
from tpkd.theory import observe

NAMES = {"blocked_share", "conditional_loss", "compensation", "retention"}


class Keep(Callback):
    """What stands in the log after each batch."""

    def __init__(self):
        self.logged = []

    def on_train_batch_end(self, trainer, *_):
        self.logged.append({name: float(each) for name, each in trainer.callback_metrics.items()})


def batches(size):
    inputs, labels = data()
    return list(zip(inputs.split(size), labels.split(size), strict=True))


def expected():
    inputs, labels = data()
    seen = observe(network(0)(inputs), network(7)(inputs), labels)
    return {f"monitor/{name}": each.item() for name, each in seen.items()}


@pytest.mark.parametrize("parts", [1, 4])
def test_the_log_has_the_means_over_the_valid_rows_of_the_step(parts):
    keep = Keep()
    callbacks = [MonitorCallback(every=1), keep]
    fit(Student().distill_from(network(7)), batches(64 // parts), callbacks, accumulate_grad_batches=parts)
    assert keep.logged[-1] == pytest.approx(expected(), rel=1e-5)
    assert {f"monitor/{name}" for name in NAMES} <= keep.logged[-1].keys()
    assert all(not each for each in keep.logged[:-1])


def test_a_step_whose_last_part_returned_nothing_shows_the_others():
    class Skips(Student):
        def training_step(self, batch, batch_idx):
            return None if batch_idx == 3 else super().training_step(batch, batch_idx)

    keep = Keep()
    student = Skips().distill_from(network(7))
    fit(student, batches(16), [MonitorCallback(every=1, prefix=""), keep], accumulate_grad_batches=4)
    inputs, labels = (each[:48] for each in data())
    seen = observe(network(0)(inputs), network(7)(inputs), labels)
    assert keep.logged[-1] == pytest.approx({name: each.item() for name, each in seen.items()}, rel=1e-5)


def test_it_writes_where_lightning_logs(tmp_path):
    settings = QUIET | {"logger": CSVLogger(tmp_path), "log_every_n_steps": 2}
    trainer = Trainer(**settings, callbacks=[MonitorCallback()])
    trainer.fit(Student().distill_from(network(7)), DataLoader(batches(16), batch_size=None))
    with (tmp_path / "lightning_logs/version_0/metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [1, 3]
    assert all(float(row["monitor/retention"]) > 0 for row in rows)


def test_every_other_step_is_looked_at():
    keep = Keep()
    fit(Student().distill_from(network(7)), batches(16), [MonitorCallback(every=3, prefix=""), keep])
    first, second, third, fourth = keep.logged
    assert not first
    assert not second
    assert third.keys() >= NAMES
    assert fourth == third


def test_it_refuses_what_it_cannot_look_at():
    class Plain(LightningModule):
        def training_step(self, batch, batch_idx): ...

        def configure_optimizers(self): ...

    with pytest.raises(InputError, match="expected a DistillationModule, got Plain"):
        fit(Plain(), batches(16), [MonitorCallback()])
    with pytest.raises(InputError, match="every: expected at least 1, got 0"):
        MonitorCallback(every=0)


def test_watching_changes_nothing():
    watched, alone = Student().distill_from(network(7)), Student().distill_from(network(7))
    fit(watched, batches(16), [MonitorCallback(every=1)], max_epochs=2)
    fit(alone, batches(16), max_epochs=2)
    assert all(torch.equal(each, alone.get_parameter(name)) for name, each in watched.named_parameters())
