"""The protected loss in C, in Triton and as tensor code, against the sort-based reference in float64, and its memory.

`make test` runs this twice: here for the first and the last, and in Triton's interpreter, which takes some 30 ms a row,
so that batches are smaller there. What Triton does not take, such as float64, goes to the tensor code there as well.
"""

import math
import os
from dataclasses import replace

import pytest
import torch
from benchmarks.memory import peak_bytes
from torch import Tensor

from objectives.beyond import Expected, expected_soft, expected_top_k, soft_labels, truncated
from strategies import KINDS, all_kinds, make_pairs
from tolerances import EXACT
from tpkd.geometry.directions import directions
from tpkd.geometry.divergences import conditional_loss, label_loss
from tpkd.geometry.split import split
from tpkd.geometry.top_k import TopK
from tpkd.objectives.kernels import TAKES, code_for, cpu, tensor, values_and_direction
from tpkd.objectives.kernels.batch import Batch
from tpkd.objectives.top_k import top_k_tpkd_loss
from tpkd.objectives.tpkd import tpkd_loss

GPU = os.environ.get("TRITON_INTERPRET") == "1"
on_cpu_alone = pytest.mark.skipif(GPU, reason="not about the numbers that Triton computes")


@pytest.fixture(autouse=True, params=["gpu"] if GPU else ["cpu", "tensor"])
def code(request, monkeypatch):
    """Everything here holds for each of them."""
    if request.param != "cpu":
        monkeypatch.setattr(cpu, "_kernel", None)
    batch = torch.zeros(2, 3), torch.zeros(2, 3), torch.tensor([0, 1])
    assert code_for(*batch) == request.param
    return request.param


def few(count: int) -> int:
    """So many rows, or as few as show something where each takes long."""
    return max(2, count // 25) if GPU else count


def taken_by(code: str, dtype: torch.dtype, *, top_k: bool = False, soft: bool = False) -> str:
    """Which code computes a batch where `code` is there, as the table says."""
    takes = TAKES.get(code)
    if takes is None or dtype not in takes.student or top_k > takes.top_k or soft > takes.soft_labels:
        return "tensor"
    return code


DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def tolerance(dtype: torch.dtype, num_classes: int) -> float:
    if dtype == torch.float32 and num_classes > 1000:
        return 5e-5  # sums of 1e5 numbers in float32
    return EXACT[dtype]


def reference(student: Tensor, teacher: Tensor, labels: Tensor, beta: float = 0.5) -> tuple[Tensor, Tensor]:
    """Values and directions of every row by the geometry, in float64."""
    z, zt = student.detach().double(), teacher.double()
    values = label_loss(z, labels) + beta * conditional_loss(z, zt, labels)
    return values, directions(z, zt, labels, beta=beta).update


def fast(student: Tensor, *others: Tensor, loss=tpkd_loss, **settings: object) -> tuple[Tensor, Tensor]:
    """The loss and the gradient of its sum."""
    student = student.detach().clone().requires_grad_()
    loss = loss(student, *others, **settings)
    loss.sum().backward()
    assert student.grad is not None
    return loss.detach(), student.grad


def assert_rows_close(found: Tensor, expected: Tensor, relative: float, largest_term: Tensor | float = 0.0) -> None:
    """Within `relative` of the largest entry of each row; an entry r - q cannot be closer than r and q are rounded."""
    info = torch.finfo(torch.promote_types(found.dtype, torch.float32))
    floor = 2 * info.eps * largest_term + torch.finfo(found.dtype).smallest_normal
    scale = expected.abs().amax(-1, keepdim=True) + floor / relative
    torch.testing.assert_close(found.double() / scale, expected / scale, rtol=0, atol=relative)


def largest_conditional(pair: tuple[Tensor, Tensor], labels: Tensor) -> Tensor:
    """The largest entry of r and q in each row."""
    return torch.stack([split(logits.double(), labels).log_conditional.exp() for logits in pair]).amax((0, -1))[:, None]


@pytest.mark.parametrize("num_classes", [3, 4, 65, 100, 256, 257, 1000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_float64_reference_for_every_kind(dtype, num_classes):
    pairs = all_kinds(few(400), num_classes, seed=1, dtype=torch.float64)
    limit = 300.0 if dtype == torch.float16 else math.inf
    student, teacher = (logits.clamp(-limit, limit).to(dtype) for logits in (pairs.student, pairs.teacher))
    values, gradient = fast(student, teacher, pairs.labels, reduction="none")
    expected_values, expected = reference(student, teacher, pairs.labels)
    assert gradient.dtype == dtype
    assert values.dtype == torch.promote_types(dtype, torch.float32)
    largest_term = largest_conditional((student, teacher), pairs.labels)
    assert_rows_close(gradient, expected, tolerance(dtype, num_classes), largest_term)
    exact = EXACT[values.dtype]
    torch.testing.assert_close(values.double(), expected_values, rtol=exact, atol=5 * exact)


@pytest.mark.parametrize("beside_nan", [False, True])
@pytest.mark.parametrize("lead", [-1000.0, 0.0, 20.0, 35.0, 80.0, 1000.0])
@pytest.mark.parametrize("leads", [(0,), (1,), (0, 1)])
def test_a_label_far_ahead_of_the_others_costs_no_digits(lead, leads, beside_nan):
    """Also beside a row to be ignored, whose NaN would hide that the others have vanished."""
    generator = torch.Generator().manual_seed(3)
    rows = few(20)
    labels = torch.randint(1000, (rows,), generator=generator)
    pair = [torch.randn(rows, 1000, generator=generator) for _ in range(2)]
    for network in leads:
        pair[network].scatter_(-1, labels[:, None], lead)
    _, expected = reference(*pair, labels)
    given = labels
    if beside_nan:
        given, expected[0] = labels.clone(), 0.0
        given[0], pair[0][0] = -100, torch.nan
    _, gradient = fast(*pair, given, reduction="sum")
    assert_rows_close(gradient, expected, tolerance(torch.float32, 1000))


@pytest.mark.parametrize("num_classes", [100, 1000])
@pytest.mark.parametrize("lead", [12.0, 20.0, 30.0, 60.0])
def test_a_certain_student_that_knows_all_the_teacher_knows_has_nothing_left_to_learn(lead, num_classes):
    """Equal conditional distributions stay bitwise equal however far the label leads: noise is no lesson."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(num_classes, (few(20),), generator=generator)
    teacher = torch.randn(few(20), num_classes, generator=generator)
    student = teacher.scatter(-1, labels[:, None], lead)
    values, gradient = fast(student, teacher, labels, reduction="none")
    assert torch.equal(values, fast(student, student, labels, reduction="none")[0])
    assert torch.equal(gradient, fast(student, student, labels, reduction="none")[1])


@pytest.mark.parametrize("rows", [20, 600])  # less and more than a block
def test_a_label_far_ahead_of_the_others_in_logits_that_are_written_over(rows):
    rows, generator = few(rows), torch.Generator().manual_seed(3)
    student, teacher = (torch.randn(rows, 1000, generator=generator) for _ in range(2))
    labels = torch.arange(rows)
    student.fill_diagonal_(50.0)
    _, expected = reference(student, teacher, labels)
    batch = Batch(student, teacher, labels, None, 0.5, 1.0, True, overwrite=True)
    direction = values_and_direction(batch).direction
    assert direction is student
    assert_rows_close(direction, expected, tolerance(torch.float32, 1000))


@pytest.mark.parametrize(("rows", "num_classes"), [(30, 5000), (12, 21841), (2, 151936), (2, 200000)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_equals_the_reference_with_many_classes(dtype, rows, num_classes):
    rows = min(rows, 3) if GPU else rows
    generator = torch.Generator().manual_seed(0)
    scales = torch.tensor([0.01, 1.0, 5.0])[torch.arange(rows) % 3].unsqueeze(-1)
    student = (torch.randn(rows, num_classes, generator=generator) * scales).to(dtype)
    teacher = (torch.randn(rows, num_classes, generator=generator) * scales).to(dtype)
    labels = torch.randint(num_classes, (rows,), generator=generator)
    values, gradient = fast(student, teacher, labels, reduction="none")
    expected_values, expected = reference(student, teacher, labels)
    assert_rows_close(gradient, expected, tolerance(dtype, num_classes))
    torch.testing.assert_close(values.double(), expected_values, rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("num_classes", [3, 100, 300, 20000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_protects_every_margin_bitwise(dtype, num_classes):
    count = few(20 if num_classes > 1000 else 500)
    student, teacher, labels = all_kinds(count, num_classes, seed=2, dtype=dtype)
    finite = student.isfinite().all(-1) & teacher.isfinite().all(-1)  # float16 has no 1e5
    _, gradient = fast(student[finite], teacher[finite], labels[finite], reduction="sum")
    at_label = gradient.gather(-1, labels[finite].unsqueeze(-1))
    assert (gradient >= at_label).all()


@pytest.mark.parametrize("num_classes", [3, 100, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_finished_teacher_adds_exactly_nothing(dtype, num_classes):
    student, _, labels = make_pairs("random", few(200), num_classes, seed=10, dtype=dtype)
    without, label_gradient = fast(student, student, labels, reduction="none", beta=0.0)
    values, gradient = fast(student, student, labels, reduction="none", beta=1e6)
    assert torch.equal(values, without)
    assert torch.equal(gradient, label_gradient)


@on_cpu_alone
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "num_classes"), [(256, 1000), (9999, 100), (8192, 150), (4096, 300), (40, 21841), (4, 151936)]
)
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("may_look", [True, False])
def test_holds_one_gradient_and_four_megabytes(monkeypatch, dtype, rows, num_classes, reduction, may_look):
    monkeypatch.setattr(tensor, "can_read_values", lambda tensor: may_look)
    student = torch.randn(rows, num_classes, dtype=dtype, requires_grad=True)
    teacher, labels = torch.randn(rows, num_classes, dtype=dtype), torch.arange(rows) % num_classes
    peak = peak_bytes(lambda: tpkd_loss(student, teacher, labels, reduction=reduction).sum().backward())
    assert rows * num_classes * dtype.itemsize < peak
    assert peak <= rows * num_classes * dtype.itemsize + max(4e6, 4 * num_classes * dtype.itemsize)


@pytest.mark.parametrize("size", [1e5, 1e10, 1e30])
@pytest.mark.parametrize(("rows", "num_classes"), [(50, 30), (2000, 30), (200, 300)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_logits_of_any_finite_size(dtype, rows, num_classes, size):
    student, teacher, labels = make_pairs("random", few(rows), num_classes, seed=13, dtype=torch.float64)
    student, teacher = (student * size).to(dtype), (teacher * size).to(dtype)
    losses, gradients = fast(student, teacher, labels, reduction="none")
    values, directions = reference(student, teacher, labels)
    torch.testing.assert_close(losses.double(), values, rtol=2e-6, atol=1e-6)
    assert_rows_close(gradients, directions, EXACT[dtype], largest_term=1.0)


@on_cpu_alone
@pytest.mark.parametrize("rows", [8, 2000])
def test_settings_of_the_whole_program_do_not_matter(rows):
    """A default device other than that of the logits; beta may be a number of any kind."""
    student, teacher, labels = make_pairs("huge", rows, 30, seed=14, dtype=torch.float32)
    expected = fast(student, teacher, labels)
    with torch.device("meta"):
        found = fast(student, teacher, labels, beta=torch.tensor(0.5, device="cpu"))
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@on_cpu_alone
def test_nothing_is_warned_of_where_logits_are_not_finite(recwarn):
    student, teacher, labels = make_pairs("random", 5, 30, seed=8)
    student[0], teacher[1, 3], student[2, 3], teacher[2, 3] = -torch.inf, torch.nan, -torch.inf, -torch.inf
    fast(student, teacher, labels)
    assert not recwarn.list


@pytest.mark.parametrize("shift", [-1e7, -1e3, 1e3, 1e5, 1e7])
@pytest.mark.parametrize(("rows", "num_classes"), [(50, 30), (2000, 30), (50, 1001), (50, 1037)])
def test_a_common_shift_costs_no_digits(rows, num_classes, shift):
    student, teacher, labels = make_pairs("random", few(rows), num_classes, seed=9, dtype=torch.float32)
    student, teacher = student + shift, teacher - shift  # rounded here, and exact from here on
    values, directions = reference(student, teacher, labels)
    losses, gradients = fast(student, teacher, labels, reduction="none")
    torch.testing.assert_close(losses.double(), values, rtol=2e-6, atol=1e-6)
    assert_rows_close(gradients, directions, tolerance(torch.float32, 1000))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("num_classes", [30, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_class_that_both_networks_rule_out_is_not_there(dtype, num_classes, compiled):
    student, teacher, labels = make_pairs("random", few(20), num_classes, seed=7, dtype=dtype)
    labels[labels == 3] = 4
    kept = torch.arange(num_classes) != 3
    losses, gradients = fast(student[:, kept], teacher[:, kept], labels - (labels > 3).long(), reduction="none")
    student[:, 3] = teacher[:, 3] = -torch.inf
    leaf = student.clone().requires_grad_()
    loss = torch.compile(tpkd_loss, backend="eager") if compiled else tpkd_loss
    found = loss(leaf, teacher, labels, reduction="none")
    found.sum().backward()
    torch.testing.assert_close(found.detach(), losses, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(leaf.grad[:, kept], gradients, rtol=1e-2 if dtype.itemsize == 2 else 1e-4, atol=1e-5)
    assert (leaf.grad[:, 3] == 0).all()


@pytest.mark.parametrize("broken", ["student", "teacher"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("num_classes", [30, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_broken_logit_shows_in_the_value_and_gradient_of_its_row(dtype, num_classes, value, broken):
    student, teacher, labels = make_pairs("random", 5, num_classes, seed=8, dtype=dtype)
    (student if broken == "student" else teacher)[2, (labels[2] + 1) % num_classes] = value
    losses, gradients = fast(student, teacher, labels, reduction="none")
    expected = torch.arange(5) == 2
    assert torch.equal(losses.isnan(), expected)
    assert torch.equal(gradients.isnan().any(-1), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ignored_rows_leave_nothing_behind_in_any_block(dtype):
    student, teacher, labels = make_pairs("random", few(300), 5000, seed=3, dtype=dtype)
    labels[::3] = -100
    kept = labels != -100
    clean_loss, clean = fast(student[kept], teacher[kept], labels[kept])
    student[~kept], teacher[~kept] = torch.nan, torch.inf
    loss, gradient = fast(student, teacher, labels)
    torch.testing.assert_close(loss, clean_loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient[kept], clean, rtol=EXACT[dtype], atol=float(clean.abs().max()) * EXACT[dtype])
    assert (gradient[~kept] == 0).all()


@pytest.mark.parametrize(("rows", "num_classes"), [(200, 100), (2000, 100), (200, 300)])
def test_what_rounding_leaves_of_a_finished_teacher_is_never_negative(rows, num_classes):
    teacher, _, labels = make_pairs("random", few(rows), num_classes, seed=12, dtype=torch.float32)
    student = teacher + 1e-5 * teacher.sin()
    without, _ = fast(student, teacher, labels, reduction="none", beta=0.0)
    assert (fast(student, teacher, labels, reduction="none", beta=1e6)[0] >= without).all()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_rows_scale_rows(kind):
    student, teacher, labels = make_pairs(kind, 20, 30, seed=4)
    weights = torch.linspace(-1, 2, 20, dtype=torch.float64)
    leaf = student.clone().requires_grad_()
    (tpkd_loss(leaf, teacher, labels, reduction="none") * weights).sum().backward()
    _, expected = reference(student, teacher, labels)
    assert_rows_close(leaf.grad, expected * weights.unsqueeze(-1), 1e-12)


@pytest.mark.parametrize("num_items", [7, torch.tensor(7), torch.tensor([7])])
def test_num_items_is_the_denominator(num_items):
    student, teacher, labels = make_pairs("random", 20, 30, seed=5)
    total, gradient = fast(student, teacher, labels, reduction="sum")
    loss, scaled = fast(student, teacher, labels, num_items=num_items)
    torch.testing.assert_close(loss.reshape(()), total / 7, rtol=1e-14, atol=0)
    torch.testing.assert_close(scaled, gradient / 7, rtol=1e-13, atol=1e-17)


@on_cpu_alone
def test_float16_keeps_what_a_loss_scale_saves():
    student, teacher, labels = make_pairs("random", 512, 100, seed=6, dtype=torch.float16)
    leaf = student.clone().requires_grad_()
    (tpkd_loss(leaf, teacher, labels) * 1024.0).backward()
    _, expected = reference(student, teacher, labels)
    visible = expected.abs() > 1e-4  # a tenth of these are subnormal in float16 once divided by 512
    torch.testing.assert_close(leaf.grad.double()[visible], expected[visible] * 2, rtol=2e-3, atol=0)


def test_layouts_of_cross_entropy():
    student, teacher, labels = make_pairs("random", 24, 50, seed=7)
    values, gradient = fast(student, teacher, labels, reduction="none")
    images = [x.reshape(2, 3, 4, 50).movedim(-1, 1) for x in (student, teacher)]
    image_values, image_gradient = fast(*images, labels.reshape(2, 3, 4).int(), reduction="none")
    torch.testing.assert_close(image_values.reshape(-1), values, rtol=1e-13, atol=0)
    torch.testing.assert_close(image_gradient.movedim(1, -1).reshape(24, 50), gradient, rtol=1e-12, atol=1e-15)
    one_value, one_gradient = fast(student[0], teacher[0], labels[0], reduction="none")
    torch.testing.assert_close((one_value, one_gradient), (values[0], gradient[0]), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("num_classes", [50, 300])
def test_strides_of_the_student_do_not_matter(num_classes):
    student, teacher, labels = make_pairs("random", 24, num_classes, seed=7)
    _, gradient = fast(student, teacher, labels, reduction="none")
    negated = torch.complex(student, -student).conj().imag  # the student, by a bit that says minus
    for strided in (torch.stack([student, student], -1)[..., 0], student.T.contiguous().T, negated):
        leaf = strided.detach().requires_grad_()  # without a clone, which could change the strides
        tpkd_loss(leaf, teacher, labels, reduction="sum").backward()
        torch.testing.assert_close(leaf.grad, gradient, rtol=1e-13, atol=0)


def test_an_ignored_index_may_be_a_class():
    student, teacher, labels = make_pairs("random", 24, 5, seed=7)
    _, gradient = fast(student, teacher, labels, ignore_index=3)
    assert (labels == 3).any()
    assert torch.equal(gradient.abs().sum(-1) == 0, labels == 3)


@pytest.mark.parametrize("num_classes", [5, 1000])
def test_empty_batch_is_zero_with_a_graph(num_classes):
    leaf = torch.zeros(0, num_classes, requires_grad=True)
    loss = tpkd_loss(leaf, torch.zeros(0, num_classes), torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0
    assert leaf.grad is not None


@on_cpu_alone
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_reads_no_value_off_the_cpu(reduction, dtype):
    """Tensors without values stand for an accelerator: any look at one, or any call of the CPU alone, raises."""
    student = torch.empty(40, 21841, device="meta", dtype=dtype, requires_grad=True)
    labels = torch.empty(40, device="meta", dtype=torch.long)
    loss = tpkd_loss(student, torch.empty_like(student), labels, reduction=reduction)
    loss.sum().backward()
    assert student.grad is not None
    assert student.grad.shape == student.shape


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_compiled_equals_eager(reduction):
    torch.compiler.reset()  # or recompiling for other settings comes to its limit
    student, teacher, labels = all_kinds(few(100), 300, seed=9, dtype=torch.float32)
    labels[::7] = -100
    student[labels == -100] = torch.nan
    eager_loss, eager = fast(student, teacher, labels, reduction=reduction)
    leaf = student.clone().requires_grad_()
    loss = torch.compile(tpkd_loss, fullgraph=True, dynamic=False)(leaf, teacher, labels, reduction=reduction)
    loss.sum().backward()
    torch.testing.assert_close(loss.detach(), eager_loss, rtol=2e-6, atol=1e-5)
    assert leaf.grad is not None
    assert_rows_close(leaf.grad, eager.double(), EXACT[torch.float32], largest_term=1.0)
    valid = labels != -100
    assert (leaf.grad[valid] >= leaf.grad[valid].gather(-1, labels[valid].unsqueeze(-1))).all()
    assert (leaf.grad[~valid] == 0).all()


@pytest.mark.parametrize("num_classes", [30, 500])
def test_no_gradient_wanted_is_the_value_alone(num_classes):
    student, teacher, labels = make_pairs("random", 20, num_classes, seed=8)
    with torch.no_grad():
        loss = tpkd_loss(student.requires_grad_(), teacher, labels)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, reference(student, teacher, labels)[0].mean(), rtol=1e-12, atol=0)


def test_a_bad_label_is_found_in_every_layout():
    student = torch.zeros(2, 3, 4)
    with pytest.raises(ValueError, match=r"labels: .* got 3 at position \(1, 2\)"):
        tpkd_loss(student, student, torch.tensor([[0, 1, 2, 0], [0, 1, 3, 0]]))


BEYOND = [(4, 12), (65, 12), (300, 12), (5000, 3), (21841, 2), (151936, 2), (200000, 2)]
"""Classes, and rows of them: the independent truth is a loop over rows."""


@pytest.mark.parametrize(("num_classes", "rows"), BEYOND)
@pytest.mark.parametrize("temperature", [1.0, 4.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_soft_labels_equal_the_loops(code, dtype, temperature, num_classes, rows):
    student, teacher, _ = make_pairs("random", rows, num_classes, seed=20, dtype=dtype)
    shares = soft_labels(rows, num_classes, 3, seed=20).to(torch.promote_types(dtype, torch.float32))
    assert code_for(student, teacher, shares) == taken_by(code, dtype, soft=True)
    expected = expected_soft(student, teacher, shares.double(), temperature=temperature)
    shares[1], student[1], teacher[1] = 0.0, torch.nan, torch.inf  # ignored
    assert_equals_the_loops(fast(student, teacher, shares, temperature=temperature, reduction="none"), expected)


@pytest.mark.parametrize(("num_classes", "rows"), [(3, 12), *BEYOND])
@pytest.mark.parametrize("temperature", [1.0, 4.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_truncated_teachers_equal_the_loops(code, dtype, temperature, num_classes, rows):
    student, teacher, labels = make_pairs("random", rows, num_classes, seed=21, dtype=dtype)
    top_k = truncated(teacher, labels, min(5, num_classes - 1))
    top_k = replace(top_k, log_probs=top_k.log_probs.to(torch.promote_types(dtype, torch.float32)))
    log_probs, indices = top_k.log_probs, top_k.indices
    if num_classes > 4:
        indices[0, 0], log_probs[-1, -1] = -1, -torch.inf  # an empty place, and a class that is known to have nothing
    known = {"label_log_probs": top_k.label_log_probs, "rest_log_probs": top_k.rest_log_probs}
    assert code_for(student, top_k, labels) == taken_by(code, dtype, top_k=True)
    expected = expected_top_k(student, top_k, labels, temperature=temperature)
    labels[1], student[1], log_probs[1] = -100, torch.nan, torch.nan  # ignored
    settings = {"temperature": temperature, "reduction": "none", "loss": top_k_tpkd_loss}
    assert_equals_the_loops(fast(student, log_probs, indices, labels, **known, **settings), expected)


def assert_equals_the_loops(found: tuple[Tensor, Tensor], expected: Expected) -> None:
    """But for row 1, which is ignored."""
    values, gradient = found
    exact = tolerance(gradient.dtype, gradient.shape[-1])
    assert values[1] == 0
    assert not gradient[1].any()
    kept = torch.arange(len(values)) != 1
    largest_term = expected.directions[kept].abs().amax(-1, keepdim=True).clamp(min=1.0)
    assert_rows_close(gradient[kept], expected.directions[kept], exact, largest_term)
    rounding = max(EXACT[values.dtype], 1e-12) * 5
    torch.testing.assert_close(values[kept].double(), expected.losses[kept], rtol=rounding, atol=rounding)


@pytest.mark.parametrize("num_classes", [3, 100, 1000, 20000])
@pytest.mark.parametrize("temperature", [0.5, 4.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_temperature_equals_the_reference(code, dtype, temperature, num_classes):
    student, teacher, labels = make_pairs("random", 3, num_classes, seed=22, dtype=dtype)
    assert code_for(student, teacher, labels) == taken_by(code, dtype)
    z, zt = student.double(), teacher.double()
    values, gradient = fast(student, teacher, labels, temperature=temperature, reduction="none")
    expected = directions(z, zt, labels, temperature=temperature).update
    assert_rows_close(gradient, expected, tolerance(dtype, num_classes), largest_term=temperature)
    losses = label_loss(z, labels) + 0.5 * conditional_loss(z, zt, labels, temperature=temperature)
    torch.testing.assert_close(values.double(), losses, rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("teacher_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_table_says_which_code_computes_a_batch(code, dtype, teacher_dtype):
    z, zt, y = torch.zeros(2, 5, dtype=dtype), torch.zeros(2, 5, dtype=teacher_dtype), torch.tensor([0, 1])
    takes = TAKES.get(code)
    whole = takes is not None and dtype in takes.student and teacher_dtype in takes.teacher
    top_k, soft = TopK(zt[:, :2], torch.tensor([[2, 3]] * 2)), torch.eye(5)[y]
    assert code_for(z, zt, y) == (code if whole else "tensor")
    assert code_for(z, top_k, y) == (code if whole and takes.top_k else "tensor")
    assert code_for(z, zt, soft) == (code if whole and takes.soft_labels else "tensor")
