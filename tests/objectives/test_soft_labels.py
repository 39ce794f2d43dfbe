"""Sets of correct classes: probabilities as labels, in the kernel and as tensor code, against loops."""

import pytest
import torch
from benchmarks.memory import peak_bytes
from torch import Tensor
from torch.nn import functional

from objectives.beyond import TEMPERATURES, expected_soft, soft_labels
from tolerances import EXACT
from tpkd import directions
from tpkd.objectives import create, names, tpkd_loss
from tpkd.objectives.kernels import cpu

TAKEN = (
    "ce",
    "kd",
    "kl-dist",
    "xe-kl",
    "tpkd",
    "tpkd-no-ce",
    "safe-full-kl",
    "tpkd-no-projection",
    "compensation-only",
)


@pytest.fixture(autouse=True, params=["compiled", "tensors"])
def path(request, monkeypatch):
    """Everything here holds with the kernel, and where it could not be built."""
    if request.param == "tensors":
        monkeypatch.setattr(cpu, "_kernel", None)


def pair(rows: int, num_classes: int, seed: int = 0, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    student, teacher = torch.randn(2, rows, num_classes, generator=generator, dtype=torch.float64) * scale
    return student, teacher


def value_and_gradient(student: Tensor, *others: Tensor, loss=tpkd_loss, **settings) -> tuple[Tensor, Tensor]:
    leaf = student.detach().clone().requires_grad_()
    value = loss(leaf, *others, **settings)
    value.sum().backward()
    assert leaf.grad is not None
    return value.detach(), leaf.grad


@pytest.mark.parametrize("num_classes", [4, 7, 65, 300, 1000])
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_equals_the_loops_in_float64(num_classes, temperature):
    student, teacher = pair(15, num_classes, seed=num_classes)
    shares = soft_labels(15, num_classes, 5, seed=num_classes)
    found = value_and_gradient(student, teacher, shares, temperature=temperature, reduction="none")
    expected = expected_soft(student, teacher, shares, temperature=temperature)
    scale = max(1.0, expected.losses.max().item())
    torch.testing.assert_close(found[0], expected.losses, rtol=0, atol=1e-12 * scale)
    torch.testing.assert_close(found[1], expected.directions, rtol=0, atol=1e-12 * temperature)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("label_dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_classes", [4, 129, 2000])
def test_half_and_single_precision(dtype, label_dtype, num_classes):
    student, teacher = (logits.to(dtype) for logits in pair(10, num_classes))
    shares = soft_labels(10, num_classes, 4).to(label_dtype)
    values, gradient = value_and_gradient(student, teacher, shares, reduction="none", temperature=2.0)
    normalised = shares.double() / shares.double().sum(-1, keepdim=True)
    expected = expected_soft(student, teacher, normalised, temperature=2.0)
    assert gradient.dtype == dtype
    torch.testing.assert_close(values.double(), expected.losses, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), expected.directions, rtol=EXACT[dtype], atol=2 * EXACT[torch.float32])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_one_class_with_all_the_probability_is_a_label_bit_for_bit(dtype, temperature):
    student, teacher = (logits.to(dtype) for logits in pair(30, 100))
    labels = torch.arange(30) * 3
    shares = functional.one_hot(labels, 100).to(dtype)
    for reduction in ("mean", "none"):
        hard = value_and_gradient(student, teacher, labels, temperature=temperature, reduction=reduction)
        soft = value_and_gradient(student, teacher, shares, temperature=temperature, reduction=reduction)
        assert torch.equal(hard[0], soft[0])
        assert torch.equal(hard[1], soft[1])


def test_rows_of_zeros_are_ignored_and_not_counted():
    student, teacher = (logits.float() for logits in pair(6, 50))
    shares = soft_labels(6, 50, 3).float()
    shares[1] = shares[4] = 0
    student[1], teacher[4] = torch.nan, torch.inf
    kept = torch.tensor([0, 2, 3, 5])
    for reduction in ("mean", "sum"):
        value, gradient = value_and_gradient(student, teacher, shares, reduction=reduction)
        expected, part = value_and_gradient(student[kept], teacher[kept], shares[kept], reduction=reduction)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(gradient[kept], part)
        assert (gradient[[1, 4]] == 0).all()
    each, gradient = value_and_gradient(student, teacher, shares, reduction="none")
    assert (each[[1, 4]] == 0).all()
    assert (gradient[[1, 4]] == 0).all()
    nothing, gradient = value_and_gradient(student, teacher, torch.zeros(6, 50))
    assert nothing == 0
    assert (gradient == 0).all()


def test_micro_batches_with_the_count_of_all_add_up_to_the_batch():
    student, teacher = (logits.float() for logits in pair(8, 20))
    shares = soft_labels(8, 20, 3).float()
    shares[2] = 0
    whole, gradient = value_and_gradient(student, teacher, shares)
    parts = [
        value_and_gradient(student[i : i + 2], teacher[i : i + 2], shares[i : i + 2], num_items=7) for i in (0, 2, 4, 6)
    ]
    torch.testing.assert_close(sum(part[0] for part in parts), whole)
    torch.testing.assert_close(torch.cat([part[1] for part in parts]), gradient)


@pytest.mark.parametrize("shape", [(9,), (4, 9), (2, 9, 3), (2, 9, 2, 2)])
@pytest.mark.parametrize("name", TAKEN)
def test_every_shape_that_cross_entropy_takes(name, shape):
    generator = torch.Generator().manual_seed(1)
    student, teacher = torch.randn(2, *shape, generator=generator)
    positions = [n for i, n in enumerate(shape) if i != (0 if len(shape) == 1 else 1)]
    rows = soft_labels(max(1, torch.tensor(positions).prod().item() if positions else 1), 9, 3).float()
    shares = rows.reshape(*positions, 9).movedim(-1, 1) if positions else rows[0]
    objective = create(name)
    each, gradient = value_and_gradient(student, teacher, shares, loss=objective, reduction="none")
    assert each.shape == torch.Size(positions)
    flat = [logits.movedim(0 if len(shape) == 1 else 1, -1).reshape(-1, 9) for logits in (student, teacher)]
    found, rowwise = value_and_gradient(*flat, rows, loss=objective, reduction="none")
    torch.testing.assert_close(each.flatten(), found)
    torch.testing.assert_close(gradient.movedim(0 if len(shape) == 1 else 1, -1).reshape(-1, 9), rowwise)


@pytest.mark.parametrize(
    "name", [name for name in TAKEN if "tpkd" in name or name in ("safe-full-kl", "compensation-only")]
)
@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_controls_take_the_named_direction(name, temperature):
    from tpkd import named_direction

    student, teacher = pair(12, 10)
    shares = soft_labels(12, 10, 4)
    objective = create(name, beta=0.7, temperature=temperature)
    _, gradient = value_and_gradient(student, teacher, shares, loss=objective, reduction="sum")
    expected = named_direction(name, student, teacher, shares, beta=0.7, temperature=temperature)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-13)


def test_label_losses_are_those_of_torch():
    student, teacher = pair(8, 12)
    shares = soft_labels(8, 12, 4)
    expected = functional.cross_entropy(student, shares, reduction="none")
    torch.testing.assert_close(create("ce")(student, None, shares, reduction="none"), expected)
    imitation = create("kl-dist", temperature=4.0)(student, teacher, reduction="none")
    found = create("kd")(student, teacher, shares, reduction="none")
    torch.testing.assert_close(found, expected + imitation)


def test_a_class_without_probability_may_be_ruled_out():
    student, teacher = (logits.float() for logits in pair(5, 12))
    shares = soft_labels(5, 12, 2).float()
    closed = (shares == 0).int().argmax(-1, keepdim=True)
    student, teacher = student.scatter(-1, closed, -torch.inf), teacher.scatter(-1, closed, -torch.inf)
    for name in ("ce", "tpkd"):
        value, gradient = value_and_gradient(student, teacher, shares, loss=create(name))
        assert value.isfinite()
        assert (gradient.gather(-1, closed) == 0).all()


def test_what_takes_soft_labels_is_what_the_contract_says():
    assert {name for name in names() if create(name).takes_soft_labels} == set(TAKEN)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.5, 0.4, 0.0, 0.0, 0.0], r"labels: expected probabilities.*sum 0\.9 at row 1"),
        ([1.2, -0.2, 0.0, 0.0, 0.0], r"labels: expected probabilities.*least entry -0\.2"),
        (
            [0.92, 0.02, 0.02, 0.02, 0.02],
            r"labels: expected at least 2 classes outside .* got 0 at row 1; label smoothing",
        ),
        ([0.25, 0.25, 0.25, 0.25, 0.0], r"labels: expected at least 2 classes outside .* got 1 at row 1"),
        ([torch.nan, 1.0, 0.0, 0.0, 0.0], r"labels: expected probabilities"),
    ],
)
def test_what_is_not_such_a_label_is_refused(row, message):
    student, teacher = (logits.float() for logits in pair(3, 5))
    shares = soft_labels(3, 5, 2).float()
    shares[1] = torch.tensor(row)
    with pytest.raises(ValueError, match=message):
        tpkd_loss(student.requires_grad_(), teacher, shares)


def test_shapes_that_do_not_fit_are_refused():
    student, teacher = (logits.float() for logits in pair(3, 5))
    with pytest.raises(
        ValueError, match=r"labels: expected the shape of the logits \(3, 5\) for probabilities, got .*\(3,\)"
    ):
        tpkd_loss(student, teacher, torch.rand(3))


def test_sums_may_be_off_by_the_rounding_of_mixup():
    student, teacher = (logits.float() for logits in pair(2, 6))
    weight = torch.tensor(0.3, dtype=torch.bfloat16)
    shares = torch.zeros(2, 6, dtype=torch.bfloat16)
    shares[:, 0], shares[:, 3] = weight, 1 - weight
    assert tpkd_loss(student, teacher, shares).isfinite()


def test_a_sum_just_beyond_the_tolerance_is_told_as_such():
    """The kernel sums in double; so must whoever says what it found."""
    student = torch.zeros(1, 1000)
    for excess in torch.linspace(1.0000e-4, 1.0010e-4, 50, dtype=torch.float64).tolist():
        row = torch.full((1, 1000), (1 + excess) / 990, dtype=torch.float64).float()
        row[:, 990:] = 0
        if row.sum(dtype=torch.float64) - 1 > 1e-4:
            with pytest.raises(ValueError, match="nonnegative with sum 1"):
                tpkd_loss(student, student, row)


def test_compiled_equals_eager():
    student, teacher = (logits.float() for logits in pair(40, 1000))
    shares = soft_labels(40, 1000, 5).float()
    shares[3] = 0
    torch.compiler.reset()
    compiled = torch.compile(tpkd_loss, fullgraph=True, backend="aot_eager")
    for temperature in (1.0, 4.0):
        eager = value_and_gradient(student, teacher, shares, temperature=temperature)
        graph = value_and_gradient(student, teacher, shares, temperature=temperature, loss=compiled)
        for one, other in zip(eager, graph, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_no_pair_of_a_correct_and_an_incorrect_class_is_worse_off_than_after_the_mixup_step():
    """The sum of two hard losses, as a comparison, is worse off on most states."""
    student, teacher = pair(400, 10, seed=5, scale=1.5)
    shares = soft_labels(400, 10, 1, seed=1) * 0
    first, second = torch.arange(400) % 10, (torch.arange(400) * 7 + 3) % 10
    second = torch.where(first == second, (second + 1) % 10, second)
    shares.scatter_(-1, first[:, None], 0.6).scatter_(-1, second[:, None], 0.4)
    _, protected = value_and_gradient(student, teacher, shares, reduction="sum")
    _, label = value_and_gradient(student, None, shares, loss=create("ce"), reduction="sum")
    summed = 0.6 * directions(student, teacher, first).update + 0.4 * directions(student, teacher, second).update
    correct = shares > 0

    def loses(step: Tensor) -> Tensor:
        extra = step - label
        return extra.masked_fill(correct, torch.inf).amin(-1) < extra.masked_fill(~correct, -torch.inf).amax(-1) - 1e-12

    assert not loses(protected).any()
    assert loses(summed).double().mean() > 0.8


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_one_gradient_and_bounded_scratch_memory(temperature):
    student, teacher = torch.randn(2, 64, 4000, dtype=torch.float32)
    shares = soft_labels(64, 4000, 4).float()
    leaf = student.requires_grad_()
    gradient = student.numel() * 4
    used = peak_bytes(lambda: tpkd_loss(leaf, teacher, shares, temperature=temperature).backward())
    labels = gradient * 6 if cpu._kernel is None else 0  # checked and normalised as tensors
    assert used <= 2 * gradient + 4_500_000 + labels


def test_a_label_that_allows_very_many_classes():
    """Most, all but two, and all but one of them; compiled too, where nothing but the kernel looks at labels."""
    generator = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 4, 1500, generator=generator)
    for count in (1024, 1025, 1498):
        shares = torch.zeros(4, 1500)
        shares[:, :count] = torch.rand(4, count, generator=generator) + 0.1
        shares[1] = 0
        shares[2] = torch.eye(1500)[7]
        shares = shares / shares.sum(-1, keepdim=True).clamp(min=1e-9)
        found = value_and_gradient(student, teacher, shares, reduction="none")
        kept = [0, 2, 3]
        expected = expected_soft(student[kept], teacher[kept], shares[kept].double())
        torch.testing.assert_close(found[0][kept].double(), expected.losses, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found[1][kept].double(), expected.directions, rtol=0, atol=2e-6)
        mean, gradient = value_and_gradient(student, teacher, shares)
        torch.testing.assert_close(mean, found[0].sum() / 3)
        if count == 1498:
            student.requires_grad_()
            torch.compile(tpkd_loss, fullgraph=True)(student, teacher, shares).backward()
            torch.testing.assert_close(student.grad, gradient, rtol=1e-5, atol=1e-7)
            student = student.detach()
    shares[0] = 1 / 1500
    with pytest.raises(ValueError, match="at least 2 classes outside"):
        tpkd_loss(student, teacher, shares)
