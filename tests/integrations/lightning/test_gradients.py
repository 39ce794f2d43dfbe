"""The gradient of a Lightning step is that of the objective on the whole effective batch, however it is cut."""

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.nn.functional import cross_entropy

from integrations.lightning.tiny import CLASSES, SEPARABLE, WIDTH, Student, assert_close, data, fit, network
from integrations.lightning.tiny import own_gradients as own
from tpkd import tpkd_loss
from tpkd.errors import InputError
from tpkd.integrations.lightning import DistillationModule
from tpkd.objectives import create

# float32 gradients of order 0.1 here, sums of 64 terms in another order: 1e-6 leaves a factor of ten.


def parts(inputs, labels, size):
    return list(zip(inputs.split(size), labels.split(size), strict=True))


@pytest.mark.parametrize("name", SEPARABLE)
def test_every_objective_gives_the_gradient_of_our_own_loop(name):
    (inputs, labels), teacher, student = data(), network(7), Student()
    (found,) = fit(student.distill_from(teacher, name), parts(inputs, labels, 64))
    assert_close(found, own(student, teacher, inputs, labels, create(name)))


@pytest.mark.parametrize("ignored", [0.0, 0.4], ids=["all-valid", "masked"])
@pytest.mark.parametrize("name", ["kd", "tpkd"])
def test_four_micro_batches_are_one_batch(name, ignored):
    (inputs, labels), teacher = data(ignored=ignored), network(7)
    (whole,) = fit(Student().distill_from(teacher, name), parts(inputs, labels, 64))
    (cut,) = fit(Student().distill_from(teacher, name), parts(inputs, labels, 16), accumulate_grad_batches=4)
    assert_close(cut, whole)
    assert_close(cut, own(Student(), teacher, inputs, labels, create(name)))


def test_valid_labels_are_counted_in_any_integer_type():
    """Of 300 classes, all rows of a micro-batch are of class 156, which is -100 in eight bits."""
    inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([156, 156, 2, 3])
    teacher = torch.nn.Linear(3, 300)
    for dtype in (torch.uint8, torch.uint16):
        student = DistillationModule().distill_from(teacher)
        for rows in (slice(0, 2), slice(2, 4)):
            logits = torch.zeros(2, 300, requires_grad=True)
            student.distillation_loss(logits, labels[rows].to(dtype), inputs=inputs[rows])
            assert student._count == 2


def test_without_the_share_the_host_takes_a_mean_of_means():
    """The test above could fail: Lightning's own accumulation does under the same mask."""

    class Plain(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network(0)

        def training_step(self, batch, batch_idx):
            return cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    inputs, labels = data()
    (found,) = fit(Plain(), parts(inputs, labels, 16), accumulate_grad_batches=4)
    expected = own(Student(), network(7), inputs, labels, create("ce"))
    assert max((found[name] - expected[name]).abs().max() for name in expected) > 1e-3


def test_a_last_window_that_is_not_full_is_a_mean_too():
    """Lightning divides by the size of a full window; 3 batches in windows of 2 leave a window of one."""
    (inputs, labels), teacher = data(48), network(7)
    student = Student(learning_rate=0.0).distill_from(teacher)
    first, last = fit(student, parts(inputs, labels, 16), accumulate_grad_batches=2)
    assert_close(first, own(student, teacher, inputs[:32], labels[:32], create("tpkd")))
    assert_close(last, own(student, teacher, inputs[32:], labels[32:], create("tpkd")))


@pytest.mark.parametrize("empty", [0, 2, 3], ids=["first", "middle", "last"])
def test_a_micro_batch_with_nothing_valid_has_no_share(empty):
    (inputs, labels), teacher = data(), network(7)
    labels[16 * empty : 16 * (empty + 1)] = -100
    student = Student().distill_from(teacher)
    (found,) = fit(student, parts(inputs, labels, 16), accumulate_grad_batches=4)
    assert_close(found, own(student, teacher, inputs, labels, create("tpkd")))


def test_nothing_valid_at_all_is_a_step_of_zero_gradient():
    inputs, labels = data()
    batches = parts(inputs, torch.full_like(labels, -100), 32)
    (found,) = fit(Student().distill_from(network(7)), batches, accumulate_grad_batches=2)
    assert not any(each.any() for each in found.values())


@pytest.mark.parametrize("skipped", [0, 1, 3], ids=["first", "second", "last"])
def test_a_step_that_returns_nothing_is_left_out(skipped):
    class Skips(Student):
        def training_step(self, batch, batch_idx):
            return None if batch_idx == skipped else super().training_step(batch, batch_idx)

    (inputs, labels), teacher = data(), network(7)
    kept = torch.cat([torch.arange(64)[: 16 * skipped], torch.arange(64)[16 * (skipped + 1) :]])
    student = Skips().distill_from(teacher)
    (found,) = fit(student, parts(inputs, labels, 16), accumulate_grad_batches=4)
    assert_close(found, own(student, teacher, inputs[kept], labels[kept], create("tpkd")))


def test_clipping_sees_the_exact_gradient():
    """The hook that keeps gradients comes before clipping; with SGD the step shows what came after."""

    class Plain(Student):
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1.0)

    (inputs, labels), teacher, limit = data(), network(7), 0.01
    student = Plain().distill_from(teacher)
    before = {name: each.clone() for name, each in student.named_parameters()}
    batches = parts(inputs, labels, 16)
    (exact,) = fit(student, batches, accumulate_grad_batches=4, gradient_clip_val=limit)
    norm = torch.cat([each.flatten() for each in exact.values()]).norm()
    moved = {name: before[name] - each.detach() for name, each in student.named_parameters()}
    assert norm > 2 * limit
    assert_close(moved, {name: each * limit / norm for name, each in exact.items()})


def test_a_dense_prediction_is_taken_as_cross_entropy_takes_it():
    class Dense(Student):
        def training_step(self, batch, batch_idx):
            inputs, labels = batch
            return self.distillation_loss(self(inputs), labels, inputs={"inputs": inputs})

        def forward(self, inputs):
            return self.net(inputs).movedim(-1, 1)

    class DenseTeacher(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network(7)

        def forward(self, inputs):
            return {"logits": self.net(inputs).movedim(-1, 1)}

    inputs, labels = data()
    inputs, labels = inputs.view(8, 8, WIDTH), labels.view(8, 8)
    student = Dense()
    (found,) = fit(student.distill_from(DenseTeacher()), parts(inputs, labels, 2), accumulate_grad_batches=4)
    net = network(0)
    logits, teacher_logits = net(inputs).view(-1, CLASSES), network(7)(inputs).view(-1, CLASSES)
    tpkd_loss(logits, teacher_logits, labels.view(-1)).backward()
    assert_close(found, {f"net.{name}": each.grad for name, each in net.named_parameters()})


def test_the_exact_gradient_in_double_precision():
    """In 64 bits the two orders of summation differ by rounding alone, so a wrong share cannot hide."""
    (inputs, labels), teacher = data(), network(7).double()
    student = Student().distill_from(network(7))
    (found,) = fit(student, parts(inputs, labels, 16), accumulate_grad_batches=4, precision="64-true")
    assert_close(found, own(student, teacher, inputs.double(), labels, create("tpkd")), 1e-14)


def test_mixed_precision_gives_the_gradient_of_our_own_loop_under_autocast():
    (inputs, labels), teacher, student = data(), network(7), Student()
    (found,) = fit(student.distill_from(teacher), parts(inputs, labels, 64), precision="bf16-mixed")
    with torch.autocast("cpu", torch.bfloat16):
        expected = own(student, teacher, inputs, labels, create("tpkd"))
    assert_close(found, expected)


def test_the_logged_loss_is_the_mean_of_its_own_batch():
    (inputs, labels), teacher, student = data(), network(7), Student()
    student.distill_from(teacher, "tpkd", beta=0.25)
    expected = tpkd_loss(network(0)(inputs), teacher(inputs), labels, beta=0.25)
    assert student.training_step((inputs, labels), 0).item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_warm_up_of_an_objective_follows_the_epochs():
    (inputs, labels), teacher = data(), network(7)
    student = Student(learning_rate=0.0).distill_from(teacher, "dkd", warmup_epochs=4)
    steps = fit(student, parts(inputs, labels, 64), max_epochs=3)
    ce = own(student, teacher, inputs, labels, create("ce"))
    full = own(student, teacher, inputs, labels, create("dkd", warmup_epochs=0))
    for epoch, found in enumerate(steps, start=1):
        assert_close(found, {name: ce[name] + epoch / 4 * (full[name] - ce[name]) for name in ce}, 1e-5)


def test_a_loss_whose_share_is_unknown_is_refused():
    class Other(Student):
        def training_step(self, batch, batch_idx):
            return cross_entropy(self.net(batch[0]), batch[1])

    inputs, labels = data()
    with pytest.raises(InputError, match="training_step: expected a loss of distillation_loss"):
        fit(Other().distill_from(network(7)), parts(inputs, labels, 16), accumulate_grad_batches=4)


def test_manual_optimisation_takes_a_loss_as_it_comes():
    class Manual(Student):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            loss = 3 * super().training_step(batch, batch_idx)
            self.manual_backward(loss)
            self.gradients = {name: each.grad.clone() for name, each in self.named_parameters()}

    (inputs, labels), teacher, student = data(), network(7), Manual()
    fit(student.distill_from(teacher), parts(inputs, labels, 64))
    expected = own(student, teacher, inputs, labels, create("tpkd"))
    assert_close(student.gradients, {name: 3 * each for name, each in expected.items()})
