"""The compiled loss: which batches it takes, that nothing but the logits decides, and what it makes of each dtype."""

import importlib
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from benchmarks.losses import plain_kd
from benchmarks.memory import peak_bytes
from torch import Tensor
from torch._dynamo.utils import counters
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.flop_counter import FlopCounterMode

from strategies import INTEGER_TYPES, all_kinds, labels_of_type, make_pairs
from tolerances import EXACT
from tpkd.objectives.kernels import cpu
from tpkd.objectives.kernels.batch import Batch
from tpkd.objectives.tpkd import TPKDLoss, tpkd_loss

pytestmark = pytest.mark.skipif(
    cpu._kernel is None and shutil.which("cc") is None, reason="there is no C compiler to build the kernel"
)


def loss_and_gradient(student: Tensor, teacher: Tensor, labels: Tensor, **settings: object) -> tuple[Tensor, Tensor]:
    leaf = student.detach().requires_grad_()
    loss = tpkd_loss(leaf, teacher, labels, **settings)
    loss.sum().backward()
    assert leaf.grad is not None
    return loss.detach(), leaf.grad


@pytest.fixture
def calls(monkeypatch):
    """The number of threads of every call of the kernel."""
    found = []
    kernel = cpu._kernel

    class Watched:
        scratch_bytes = kernel.scratch_bytes

        @staticmethod
        def losses_and_directions(*given):
            found.append(given[-1])
            return kernel.losses_and_directions(*given)

    monkeypatch.setattr(cpu, "_kernel", Watched)
    return found


def test_it_is_built_where_there_is_a_compiler():
    assert cpu._kernel is not None


def test_the_module_can_be_loaded_again():
    """As notebooks do, where torch keeps the operator of the first time."""
    importlib.reload(cpu)


@pytest.mark.parametrize(
    ("student", "teacher", "is_taken"),
    [
        (torch.float32, torch.float32, True),
        (torch.float32, torch.float16, True),
        (torch.bfloat16, torch.bfloat16, True),
        (torch.bfloat16, torch.float32, True),
        (torch.float16, torch.float16, False),
        (torch.float64, torch.float64, False),
        (torch.float32, torch.float64, False),
    ],
)
def test_what_people_train_with_goes_to_the_kernel(calls, student, teacher, is_taken):
    z, zt, y = make_pairs("random", 4, 10, seed=0)
    loss_and_gradient(z.to(student), zt.to(teacher), y)
    assert len(calls) == is_taken


def test_a_subclass_of_tensor_does_not(calls):
    class Named(Tensor):
        pass

    z, zt, y = make_pairs("random", 4, 10, seed=0, dtype=torch.float32)
    tpkd_loss(z.as_subclass(Named), zt, y)
    tpkd_loss(z, zt.as_subclass(Named), y)
    assert calls == []


def test_what_is_not_memory_does_not(calls):
    z, zt, y = make_pairs("random", 4, 10, seed=0, dtype=torch.float32)
    expected = tpkd_loss(z, torch.zeros(4, 10), y)
    assert len(calls) == 1
    torch.testing.assert_close(tpkd_loss(z, torch._efficientzerotensor(4, 10), y), expected)
    tpkd_loss(z, zt, y.to("meta"))
    tpkd_loss(z, zt, TwoTensor(y, y))
    with FlopCounterMode(display=False):
        tpkd_loss(z, zt, y)
    assert len(calls) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_trace_is_not_of_one_number():
    one, other = (make_pairs("random", 4, 10, seed=seed, dtype=torch.float32) for seed in (0, 1))
    traced = torch.jit.trace(tpkd_loss, tuple(one))
    torch.testing.assert_close(traced(*other), tpkd_loss(*other))


def layouts(logits: Tensor) -> Iterator[Tensor]:
    """The same numbers, one after the other with gaps, or in another order."""
    yield torch.stack([logits, logits], -1)[..., 0]
    yield logits.T.contiguous().T
    yield torch.cat([logits, logits], -1)[:, : logits.shape[-1]]
    yield logits.repeat_interleave(2, 0)[::2]
    yield torch._neg_view(-logits)  # by a bit that says minus


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_strides_do_not_matter(calls, dtype):
    student, teacher, labels = make_pairs("random", 24, 50, seed=7, dtype=dtype)
    losses, gradient = loss_and_gradient(student, teacher, labels, reduction="none")
    batches = [(strided, teacher, labels) for strided in layouts(student)]
    batches += [(student, strided, labels) for strided in layouts(teacher)]
    batches += [(student, teacher, torch.stack([labels, labels], -1)[:, 0])]
    for batch in batches:
        found = loss_and_gradient(*batch, reduction="none")
        assert torch.equal(found[0], losses)
        assert torch.equal(found[1], gradient)
    assert len(calls) == 1 + len(batches)


def test_one_row_may_stand_for_all(calls):
    student, teacher, labels = make_pairs("random", 24, 50, seed=7, dtype=torch.float32)
    found = loss_and_gradient(student, teacher[:1].expand(24, 50), labels)
    expected = loss_and_gradient(student, teacher[:1].repeat(24, 1), labels)
    assert torch.equal(found[1], expected[1])
    assert len(calls) == 2


def test_settings_mean_what_they_mean_as_tensor_code(calls, monkeypatch):
    student, teacher, labels = all_kinds(90, 40, seed=8, dtype=torch.float32)
    labels[::4] = -100
    student[labels == -100] = torch.nan
    weights = torch.linspace(-1, 2, len(labels))

    def results() -> Iterator[tuple[Tensor, Tensor]]:
        yield loss_and_gradient(student, teacher, labels)
        yield loss_and_gradient(student, teacher, labels, num_items=7)
        yield loss_and_gradient(student, teacher, labels, reduction="sum", beta=2.0)
        yield loss_and_gradient(student.nan_to_num(), teacher, labels.clamp(min=3), ignore_index=3)
        yield tpkd_loss(student, teacher, labels), torch.zeros(1)
        leaf = student.clone().requires_grad_()
        losses = tpkd_loss(leaf, teacher, labels, reduction="none")
        (losses * weights).sum().backward()
        yield losses.detach(), leaf.grad

    found = list(results())
    assert len(calls) == len(found)
    monkeypatch.setattr(cpu, "_kernel", None)
    for (losses, gradient), (expected_losses, expected) in zip(found, results(), strict=True):
        torch.testing.assert_close(losses, expected_losses, rtol=2e-6, atol=1e-5)
        torch.testing.assert_close(gradient, expected, rtol=0, atol=2e-6 * float(expected.abs().max()))
    assert len(calls) == len(found)


@pytest.mark.parametrize("settings", [{}, {"reduction": "none"}, {"reduction": "sum"}, {"num_items": 7}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_compiled_graph_calls_it_for_all_but_small_batches(calls, dtype, settings):
    student, teacher, labels = all_kinds(200, 300, seed=9, dtype=dtype)
    labels[::7] = -100
    student[labels == -100] = torch.nan
    losses, gradient = loss_and_gradient(student, teacher, labels, **settings)
    torch.compiler.reset()  # or recompiling for other settings comes to its limit
    compiled = torch.compile(tpkd_loss, backend="aot_eager", fullgraph=True)
    leaf = student.clone().requires_grad_()
    found = compiled(leaf, teacher, labels, **settings)
    found.sum().backward()
    assert len(calls) == 2
    torch.testing.assert_close(found.detach(), losses, rtol=1e-6, atol=0)
    exact = EXACT[dtype] * float(gradient.abs().max())  # the mean divides before or after rounding
    torch.testing.assert_close(leaf.grad, gradient, rtol=0, atol=exact)
    compiled(student[:50], teacher[:50], labels[:50])
    assert len(calls) == 2


@pytest.mark.parametrize("label", [-1, 300, 305, -(2**40), 2**40])
def test_a_compiled_graph_refuses_what_is_no_class(calls, label):
    """Nothing else looks at labels there, and the kernel writes where they point."""
    student, teacher, labels = make_pairs("random", 200, 300, seed=9, dtype=torch.float32)
    labels[150] = label
    torch.compiler.reset()
    compiled = torch.compile(tpkd_loss, backend="aot_eager", fullgraph=True)
    with pytest.raises(
        ValueError, match=f"labels: expected class indices from 0 to 299 .*, got {label} at position 150"
    ):
        compiled(student.requires_grad_(), teacher, labels)
    assert len(calls) == 1
    compiled(student, teacher, labels, ignore_index=label).backward()
    assert not student.grad[150].any()


def test_labels_mean_the_same_in_every_integer_type(calls):
    """Whole batches, batches with ignored rows, and a compiled graph all end at the kernel."""
    torch.compiler.reset()
    compiled = torch.compile(tpkd_loss, backend="aot_eager", fullgraph=True)
    student, teacher, _ = make_pairs("random", 200, 300, seed=9, dtype=torch.float32)
    student.requires_grad_()
    for dtype in INTEGER_TYPES:
        labels = labels_of_type(dtype, 200, 300)
        for ignored in (-100, int(labels[1])):
            expected = tpkd_loss(student, teacher, labels.long(), ignore_index=ignored)
            assert torch.equal(tpkd_loss(student, teacher, labels, ignore_index=ignored), expected)
    for dtype in (torch.uint8, torch.uint64):
        labels = labels_of_type(dtype, 200, 300)
        found = compiled(student, teacher, labels)
        torch.testing.assert_close(found, tpkd_loss(student, teacher, labels), rtol=1e-6, atol=0)
    assert len(calls) == 2 * 2 * len(INTEGER_TYPES) + 2 * 2


def test_a_compiled_graph_refuses_labels_that_no_int64_holds(calls):
    student, teacher, _ = make_pairs("random", 200, 300, seed=9, dtype=torch.float32)
    labels = torch.tensor([0] * 150 + [2**64 - 100] + [0] * 49, dtype=torch.uint64)
    torch.compiler.reset()
    compiled = torch.compile(tpkd_loss, backend="aot_eager", fullgraph=True)
    with pytest.raises(ValueError, match=r"labels: expected class indices from 0 to 299 .* at position 150"):
        compiled(student.requires_grad_(), teacher, labels)
    assert len(calls) == 1


def test_labels_are_read_once():
    """A thread that changes them while the kernel runs, with the interpreter lock released, changes nothing."""
    rows, num_classes = 600, 20_000
    teacher = torch.randn(1, num_classes, generator=torch.Generator().manual_seed(0)).expand(rows, -1)
    student, labels = torch.empty(rows, num_classes), torch.empty(rows, dtype=torch.long)
    batch = Batch(student, teacher, labels, None, 0.5, 1.0, True, overwrite=True)
    for _ in range(20):
        student.zero_()[:, 0] = 7.0
        labels.zero_()
        expected = tpkd_loss(student[:1], teacher[:1], labels[:1])
        with ThreadPoolExecutor(1) as pool:
            # The direction replaces the student row by row, which shows how far the kernel is.
            work = pool.submit(cpu.values_and_direction, batch)
            while student[0, 0] == 7.0 and not work.done():
                pass
            labels.fill_(1)
            in_time = not work.done()
            losses = work.result()[0]
        torch.testing.assert_close(losses, expected.expand(rows))
        if in_time:
            return
    pytest.fail("the kernel was never slow enough for the labels to change meanwhile")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_operator_keeps_the_rules_of_operators(dtype):
    student, teacher, labels = make_pairs("random", 6, 10, seed=1, dtype=dtype)
    for valid in (None, labels != 3):
        for wanted in (True, False):
            given = (student, [teacher], labels, valid, 0.5, 1.0, wanted, 1.0)
            torch.library.opcheck(torch.ops.tpkd.losses_and_directions.default, given)


def test_a_compiled_graph_takes_batches_of_any_size(calls):
    torch.compiler.reset()
    counters.clear()
    compiled = torch.compile(tpkd_loss, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in range(40, 53):
        student, teacher, labels = make_pairs("random", rows, 1000, seed=rows, dtype=torch.float32)
        compiled(student.requires_grad_(), teacher, labels).backward()
    assert len(calls) == 13
    assert counters["stats"]["unique_graphs"] == 1


def test_a_compiled_graph_without_a_gradient_makes_none():
    """An infinite loss is told as such: a direction that nobody wants would make nan of it."""
    student, teacher, labels = make_pairs("random", 64, 1000, seed=1, dtype=torch.float32)
    student[3, (labels[3] + 1) % 1000] = -torch.inf
    torch.compiler.reset()
    compiled = torch.compile(tpkd_loss, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert compiled(student, teacher, labels) == tpkd_loss(student, teacher, labels) == torch.inf
    graph_inputs = (student, [teacher], labels, None, 0.5, 1.0, False, 1.0)
    assert torch.ops.tpkd.losses_and_directions(*graph_inputs)[1].numel() == 0


@pytest.mark.parametrize("strict", [True, False])
def test_what_is_exported_needs_no_tpkd(strict):
    pairs = make_pairs("random", 64, 1000, seed=1, dtype=torch.float32)
    batch = torch.export.Dim("batch", min=2, max=512)
    for reduction in ("mean", "sum", "none"):
        loss, shapes = TPKDLoss(reduction=reduction), ({0: batch},) * 3
        program = torch.export.export(loss, tuple(pairs), dynamic_shapes=shapes, strict=strict)
        assert "tpkd" not in str(program.graph)
        found = program.module()(*(part[:33] for part in pairs))
        torch.testing.assert_close(found, tpkd_loss(*(part[:33] for part in pairs), reduction=reduction))


def test_a_sum_beyond_all_numbers_is_infinite():
    student = torch.tensor([[0.0, 2e38, 0.0]] * 2)
    assert tpkd_loss(student, torch.zeros(2, 3), torch.tensor([0, 0]), reduction="sum") == torch.inf


@pytest.mark.parametrize(
    ("rows", "num_classes", "most"), [(64, 5000, 2), (16, 100, 1), (1, 50_000, 1), (8, 300_000, 1)]
)
def test_threads_share_rows_and_change_no_bit(calls, rows, num_classes, most):
    """One where waking another costs more than it does, where there is one row, or no memory for more."""
    student, teacher, labels = make_pairs("random", rows, num_classes, seed=1, dtype=torch.float32)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(loss_and_gradient(student, teacher, labels))
    finally:
        torch.set_num_threads(before)
    assert calls == [1, most]
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def test_every_half_precision_teacher_is_read_exactly():
    """All numbers of both dtypes, subnormal ones included."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        every = bits.view(dtype)
        teacher = torch.cat([every[every.isfinite()], torch.zeros(-int(every.isfinite().sum()) % 32, dtype=dtype)])
        teacher = teacher.reshape(-1, 32)
        generator = torch.Generator().manual_seed(0)
        student = torch.randn(teacher.shape, generator=generator)
        labels = torch.randint(32, (len(teacher),), generator=generator)
        found = loss_and_gradient(student, teacher, labels, reduction="none")
        expected = loss_and_gradient(student, teacher.float(), labels, reduction="none")
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_teacher_that_is_broken_shows(dtype, value):
    student, teacher, labels = make_pairs("random", 3, 10, seed=2, dtype=torch.float32)
    teacher[1, (labels[1] + 1) % 10] = value
    losses, gradient = loss_and_gradient(student, teacher.to(dtype), labels, reduction="none")
    assert losses.isnan().tolist() == [False, True, False]
    assert gradient.isnan().all(-1).tolist() == gradient.isnan().any(-1).tolist() == [False, True, False]


@pytest.mark.parametrize("num_classes", [70, 10_000])  # of a million numbers, some lie half way between two
def test_a_bfloat16_gradient_is_the_float32_one_rounded(num_classes):
    student, teacher, labels = all_kinds(120, num_classes, seed=3, dtype=torch.bfloat16)
    _, gradient = loss_and_gradient(student, teacher, labels)
    _, expected = loss_and_gradient(student.float(), teacher.float(), labels)
    assert torch.equal(gradient, expected.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_nan_of_any_bits_shows(dtype):
    student, teacher, labels = make_pairs("random", 4, 10, seed=4, dtype=torch.float32)
    labels.zero_()
    for row, bits in enumerate((0x7F800001, 0x7FFFFFFF, -1, 0x7FC00000)):
        teacher.view(torch.int32)[row, 3] = bits
    student = student.to(dtype)
    losses, gradient = loss_and_gradient(student, teacher, labels, reduction="none")
    assert losses.isnan().all()
    assert gradient.isnan().any(-1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_classes", [100, 150])
def test_small_batches_hold_less_than_kd(dtype, num_classes):
    student = torch.randn(64, num_classes, dtype=dtype, requires_grad=True)
    inputs = (student, torch.randn(64, num_classes, dtype=dtype), torch.arange(64))
    peak = peak_bytes(lambda: tpkd_loss(*inputs).backward())
    assert student.numel() * dtype.itemsize < peak < peak_bytes(lambda: plain_kd(*inputs).backward())
