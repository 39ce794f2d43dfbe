"""The teacher stays what it was, and outside: of the optimiser, the mode of the module, and every checkpoint."""

import subprocess
import sys

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn
from torch.utils.data import DataLoader

from integrations.lightning.tiny import QUIET, WIDTH, Student, assert_close, data, fit, network, own_gradients
from tpkd.errors import InputError
from tpkd.objectives import create
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows


def noisy_teacher():
    """A network that would answer otherwise, and change, in train mode."""
    torch.manual_seed(7)
    return nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Dropout(0.5), network(7))


def loaded(size=16):
    inputs, labels = data()
    return list(zip(inputs.split(size), labels.split(size), strict=True))


def test_the_teacher_is_frozen_and_unchanged_by_a_fit():
    teacher = noisy_teacher()
    before = {name: each.clone() for name, each in teacher.state_dict().items()}
    student = Student().distill_from(teacher)
    fit(student, loaded(), max_epochs=2)
    assert all(torch.equal(before[name], each) for name, each in teacher.state_dict().items())
    assert not any(module.training for module in teacher.modules())
    assert not any(each.requires_grad or each.grad is not None for each in teacher.parameters())
    assert student.training


def test_the_teacher_answers_in_evaluation_mode_even_when_somebody_set_it_to_train():
    (inputs, labels), teacher, student = data(), noisy_teacher(), Student()
    expected = own_gradients(student, teacher.eval(), inputs, labels, create("tpkd"))
    student.distill_from(teacher)
    teacher.train()
    (found,) = fit(student, [(inputs, labels)])
    assert_close(found, expected)


def test_no_module_tree_optimiser_or_checkpoint_holds_the_teacher(tmp_path):
    teacher = network(7, hidden=4096)
    student = Student().distill_from(teacher)
    trainer = Trainer(**QUIET)
    trainer.fit(student, DataLoader(loaded(), batch_size=None))
    trainer.save_checkpoint(tmp_path / "student.ckpt")
    saved = torch.load(tmp_path / "student.ckpt", weights_only=True)
    assert sorted(saved["state_dict"]) == ["net.0.bias", "net.0.weight", "net.2.bias", "net.2.weight"]
    assert saved["hyper_parameters"] == {"seed": 0, "learning_rate": 0.1}
    frozen = {id(each) for each in teacher.parameters()}
    assert not frozen & {id(each) for each in student.parameters()}
    optimised = {id(each) for group in trainer.optimizers[0].param_groups for each in group["params"]}
    assert not frozen & optimised
    # The teacher alone has 49,157 numbers of four bytes; student and optimiser have 591.
    assert (tmp_path / "student.ckpt").stat().st_size < 4 * 49_157 / 5


def test_a_loaded_module_asks_for_its_teacher(tmp_path):
    student = Student().distill_from(network(7))
    trainer = Trainer(**QUIET)
    trainer.fit(student, DataLoader(loaded(), batch_size=None))
    trainer.save_checkpoint(tmp_path / "student.ckpt")
    again = Student.load_from_checkpoint(tmp_path / "student.ckpt")
    with pytest.raises(InputError, match=r"call distill_from\(teacher\)"):
        again.training_step(loaded()[0], 0)
    loss = again.distill_from(network(7)).training_step(loaded()[0], 0)
    assert torch.equal(loss, student.training_step(loaded()[0], 0))


def test_a_teacher_inside_of_the_module_is_refused():
    class Registered(Student):
        def __init__(self, teacher):
            super().__init__()
            self.teacher = teacher

    teacher = network(7)
    with pytest.raises(InputError, match="got its own teacher, which optimisers and checkpoints would hold"):
        Registered(teacher).distill_from(teacher)
    late = Student().distill_from(teacher)
    late.teacher = teacher
    with pytest.raises(InputError, match="got its own teacher"):
        fit(late, loaded())


def test_a_teacher_among_the_hyperparameters_is_refused():
    class Remembers(Student):
        def __init__(self, teacher, ignore=()):
            super().__init__()
            self.save_hyperparameters(ignore=ignore)
            self.distill_from(teacher)

    with pytest.raises(InputError, match=r"save_hyperparameters\(ignore=\['teacher'\]\)"):
        Remembers(network(7))
    assert Remembers(network(7), ignore=["teacher"]).hparams.keys() == {"seed", "learning_rate", "ignore"}


def test_a_student_may_not_teach_itself():
    student = Student()
    with pytest.raises(InputError, match="shares net"):
        student.distill_from(nn.Sequential(student.net, nn.Identity()))


@pytest.fixture
def cache(tmp_path):
    """The answers of the teacher to every input, in full precision, by the number of the row plus 100."""
    inputs, _ = data()
    rows = CacheRows(range(100, 164), [0] * 64, lambda start, stop: inputs[start:stop])
    recipe = CacheRecipe("teacher", "data", {}, None, 5, dtype="float32")
    build_cache(tmp_path / "cache", rows, lambda block: {"logits": network(7)(block)}, recipe)
    return tmp_path / "cache"


@pytest.mark.parametrize("opened", [False, True], ids=["directory", "open"])
def test_a_cache_teaches_as_the_network_it_was_built_with(cache, opened):
    (inputs, labels), order = data(), torch.randperm(64, generator=torch.Generator().manual_seed(5))
    batches = [(inputs[rows], labels[rows], rows + 100) for rows in order.split(16)]
    student = Student().distill_from(open_cache(cache) if opened else cache)
    (found,) = fit(student, batches, accumulate_grad_batches=4)
    assert_close(found, own_gradients(student, network(7), inputs, labels, create("tpkd")))


def test_a_cache_is_asked_by_id_and_a_network_by_inputs(cache):
    batch = loaded()[0]
    with pytest.raises(InputError, match="sample_ids: expected which rows of the teacher cache"):
        fit(Student().distill_from(cache), [batch])
    with pytest.raises(InputError, match="sample 0, view 0: no such row"):
        fit(Student().distill_from(cache), [(*batch, torch.arange(16))])

    class Forgets(Student):
        def training_step(self, batch, batch_idx):
            return self.distillation_loss(self.net(batch[0]), batch[1])

    with pytest.raises(InputError, match="inputs: expected what to call the teacher with"):
        fit(Forgets().distill_from(network(7)), [batch])


@pytest.mark.parametrize("name", ["dp-u", "dp-s", "dhkd", "dto-kd"])
def test_an_objective_that_needs_more_is_refused_by_name(name):
    with pytest.raises(InputError, match=f"objective '{name}' needs .* which Lightning cannot give"):
        Student().distill_from(network(7), name)


def test_plain_cross_entropy_needs_no_teacher_and_everything_else_does():
    (inputs, labels), student = data(), Student()
    (found,) = fit(student.distill_from(None, "ce"), [(inputs, labels)])
    assert_close(found, own_gradients(student, network(7), inputs, labels, create("ce")))
    with pytest.raises(InputError, match="teacher: expected a model or a teacher cache"):
        Student().distill_from(None)


def test_a_strategy_that_hides_gradients_is_refused():
    student = Student().distill_from(network(7))
    student._trainer = type("Trainer", (), {"strategy": FSDPStrategy()})()
    with pytest.raises(InputError, match="strategy: expected one device or DDP, got FSDPStrategy"):
        student.training_step(loaded()[0], 0)


def test_the_teacher_follows_the_module_to_its_device():
    student, teacher = Student(), network(7)
    student.distill_from(teacher, "ce").to("meta")
    inputs, labels = (each.to("meta") for each in loaded()[0])
    student.training_step((inputs, labels), 0)
    assert {each.device.type for each in teacher.parameters()} == {"meta"}


def test_validation_may_ask_for_the_same_loss_and_counts_for_nothing():
    class Validates(Student):
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", self.training_step(batch, batch_idx))

    short = [tuple(each[:5] for each in batch) for batch in loaded()]
    student, alone = Validates().distill_from(network(7)), Student().distill_from(network(7))
    trainer = Trainer(**QUIET | {"accumulate_grad_batches": 4, "val_check_interval": 1})
    trainer.fit(student, *(DataLoader(batches, batch_size=None) for batches in (loaded(), short)))
    fit(alone, loaded(), accumulate_grad_batches=4)
    assert trainer.callback_metrics["val_loss"] > 0
    for name, each in student.named_parameters():
        assert torch.equal(each, alone.get_parameter(name))


def test_without_lightning_the_extra_is_named():
    code = "import sys; sys.modules['lightning'] = None; import tpkd.integrations.lightning"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith("is not installed: pip install 'tpkd[lightning]'")
