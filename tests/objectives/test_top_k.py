"""Truncated teachers, in the kernel and as tensor code: against loops, autograd, and the whole teacher."""

import math

import pytest
import torch
from benchmarks.memory import peak_bytes
from torch import Tensor

from objectives.beyond import TEMPERATURES, expected_top_k, truncated
from strategies import make_pairs
from tolerances import EXACT
from tpkd import (
    TPKDLoss,
    complete_top_k,
    linear_top_k_tpkd_loss,
    linear_tpkd_loss,
    top_k_kd_loss,
    top_k_tpkd_loss,
    tpkd_loss,
)
from tpkd.geometry import TopK
from tpkd.objectives import create, kd_loss, names
from tpkd.objectives import linear as linear_module
from tpkd.objectives.kernels import cpu

KNOWN = {"all": (True, True), "no rest": (True, False), "no label": (False, False)}
each_known = pytest.mark.parametrize("known", KNOWN)


@pytest.fixture(autouse=True, params=["compiled", "tensors"])
def path(request, monkeypatch):
    """Everything here holds with the kernel, and where it could not be built."""
    if request.param == "tensors":
        monkeypatch.setattr(cpu, "_kernel", None)


def parts(top_k: TopK) -> tuple[tuple[Tensor, Tensor], dict]:
    return (top_k.log_probs, top_k.indices), {
        "label_log_probs": top_k.label_log_probs,
        "rest_log_probs": top_k.rest_log_probs,
    }


def value_and_gradient(
    student: Tensor, top_k: TopK, labels: Tensor, loss=top_k_tpkd_loss, **settings
) -> tuple[Tensor, Tensor]:
    leaf = student.detach().clone().requires_grad_()
    given, known = parts(top_k)
    value = loss(leaf, *given, labels, **known, **settings)
    value.sum().backward()
    assert leaf.grad is not None
    return value.detach(), leaf.grad


@each_known
@pytest.mark.parametrize("num_classes", [4, 7, 65, 300, 1000])
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_equals_completion_by_loops_in_float64(num_classes, temperature, known):
    label, rest = KNOWN[known]
    for kind in ("random", "certain-both", "blocked", "sparse"):
        student, teacher, labels = make_pairs(kind, 6, num_classes, seed=num_classes)
        sizes = (1, num_classes // 2, num_classes - 1)
        if not rest:
            # One minus what is given must be more than a rounding: a teacher that leaves much to the others.
            generator = torch.Generator().manual_seed(1)
            teacher, sizes = torch.randn(teacher.shape, dtype=torch.float64, generator=generator), (1, 2)
        for k in sizes:
            top_k = truncated(teacher, labels, k, label=label, rest=rest)
            found = value_and_gradient(student, top_k, labels, temperature=temperature, reduction="none")
            expected = expected_top_k(student, top_k, labels, temperature=temperature)
            scale = expected.losses.abs().clamp(min=1)
            torch.testing.assert_close(found[0] / scale, expected.losses / scale, rtol=0, atol=1e-12)
            torch.testing.assert_close(found[1], expected.directions, rtol=0, atol=1e-12 * max(1.0, temperature))


@each_known
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_half_and_single_precision(dtype, stored, temperature, known):
    student, teacher, labels = make_pairs("random", 20, 500, seed=3)
    student = student.clamp(-200, 200).to(dtype)
    label, rest = KNOWN[known]
    whole = truncated(teacher, labels, 16, label=label, rest=rest)
    top_k = TopK(whole.log_probs.to(stored), whole.indices, whole.label_log_probs, whole.rest_log_probs)
    values, gradient = value_and_gradient(student, top_k, labels, temperature=temperature, reduction="none")
    expected = expected_top_k(student, top_k, labels, temperature=temperature)
    scale = expected.losses.abs().clamp(min=1)
    assert gradient.dtype == dtype
    # Where the rest is one minus what is given, that difference is rounded in the dtype of the computation.
    loose = 2e-4 if not rest and label else 5e-6
    torch.testing.assert_close(values.double() / scale, expected.losses / scale, rtol=0, atol=loose)
    torch.testing.assert_close(
        gradient.double(), expected.directions, rtol=EXACT[dtype], atol=loose * max(1.0, temperature)
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("num_classes", [3, 10, 200])
def test_with_all_classes_kept_it_is_the_loss_of_the_whole_teacher(num_classes, temperature, dtype):
    student, teacher, labels = make_pairs("random", 20, num_classes, seed=1, dtype=dtype)
    leaf = student.clone().requires_grad_()
    whole = tpkd_loss(leaf, teacher, labels, temperature=temperature, reduction="none")
    whole.sum().backward()
    for k in (num_classes, num_classes - 1):
        top_k = truncated(teacher, labels, k).map(lambda x: x.to(dtype) if x.is_floating_point() else x)
        found = value_and_gradient(student, top_k, labels, temperature=temperature, reduction="none")
        exact = 20 * EXACT[dtype]
        scale = whole.detach().abs().clamp(min=1)
        torch.testing.assert_close(found[0] / scale, whole.detach() / scale, rtol=0, atol=exact)
        torch.testing.assert_close(found[1], leaf.grad, rtol=0, atol=exact * max(1.0, temperature))


def test_the_unprotected_gradient_is_that_of_the_merged_divergence():
    """Autograd of the KL of merged distributions, at temperature 1: the completed teacher is not held fixed there."""
    student, teacher, labels = make_pairs("random", 30, 40, seed=9)
    top_k = truncated(teacher, labels, 5)
    leaf = student.clone().requires_grad_()
    create("tpkd-no-projection", beta=1.0)(leaf, top_k, labels, reduction="sum").backward()
    merged = student.clone().requires_grad_()
    is_label = torch.nn.functional.one_hot(labels, 40).bool()
    kept = torch.zeros_like(is_label).scatter(-1, top_k.indices, True) & ~is_label
    log_r = merged.masked_fill(is_label, -torch.inf).log_softmax(-1)
    log_q = teacher.masked_fill(is_label, -torch.inf).log_softmax(-1)
    rest = ~kept & ~is_label
    rest_r = log_r.masked_fill(~rest, -torch.inf).logsumexp(-1)
    rest_q = log_q.masked_fill(~rest, -torch.inf).logsumexp(-1)
    kept_terms = torch.where(kept, log_q.exp() * (log_q - log_r), 0.0).sum(-1)
    divergence = kept_terms + rest_q.exp() * (rest_q - rest_r)
    (divergence + torch.nn.functional.cross_entropy(merged, labels, reduction="none")).sum().backward()
    torch.testing.assert_close(leaf.grad, merged.grad, rtol=0, atol=1e-12)


def test_ordinary_distillation_from_the_merged_teacher():
    student, teacher, labels = make_pairs("random", 30, 40, seed=4)
    for label in (True, False):
        top_k = truncated(teacher, labels, 5, label=label)
        given, known = parts(top_k)
        completed = complete_top_k(student, *given, labels, **known)
        found = value_and_gradient(student, top_k, labels, loss=top_k_kd_loss, reduction="none", kd_weight=0.7)
        leaf = student.clone().requires_grad_()
        expected = kd_loss(leaf, completed, labels, temperature=1.0, kd_weight=0.7, reduction="none")
        expected.sum().backward()
        torch.testing.assert_close(found[0], expected.detach(), rtol=0, atol=1e-12)
        torch.testing.assert_close(found[1], leaf.grad, rtol=0, atol=1e-12)
        through = create("kd", temperature=1.0, kd_weight=0.7)(student, top_k, labels, reduction="none")
        torch.testing.assert_close(through, expected.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_no_margin_against_any_class_is_worse_off_than_after_the_label_step(dtype):
    student, teacher, labels = make_pairs("random", 200, 30, seed=2, dtype=dtype)
    for known in KNOWN.values():
        top_k = truncated(teacher, labels, 4, label=known[0], rest=known[1])
        for temperature in (0.5, 1.0, 4.0):
            _, step = value_and_gradient(student, top_k, labels, temperature=temperature, reduction="sum")
            leaf = student.clone().requires_grad_()
            torch.nn.functional.cross_entropy(leaf, labels, reduction="sum").backward()
            extra = step - leaf.grad
            at_label = extra.gather(-1, labels[:, None])
            assert (extra - at_label >= -10 * EXACT[dtype]).all()


def test_rules_of_what_is_known():
    student = torch.tensor([[1.0, 0.5, 0.0, -0.5, 0.2]], dtype=torch.float64)
    labels, log = torch.tensor([0]), torch.log
    kept = torch.tensor([[0.3, 0.2, 0.1]], dtype=torch.float64)
    one = TopK(log(kept), torch.tensor([[0, 2, -1]]), log(torch.tensor([0.4], dtype=torch.float64)))
    other = TopK(log(kept[:, 1:2]), torch.tensor([[2]]), log(torch.tensor([0.4], dtype=torch.float64)))
    for wins, bare in zip(
        value_and_gradient(student, one, labels), value_and_gradient(student, other, labels), strict=True
    ):  # the stored label wins, an empty place is not there
        torch.testing.assert_close(wins, bare, rtol=0, atol=1e-15)
    zero = TopK(log(torch.tensor([[0.5, 0.0]], dtype=torch.float64)), torch.tensor([[0, 3]]))
    completed = complete_top_k(student, zero.log_probs, zero.indices, labels).exp()
    assert completed[0, 3] == 0
    torch.testing.assert_close(completed.sum(), torch.tensor(1.0, dtype=torch.float64))
    assert value_and_gradient(student, zero, labels)[0].isfinite()
    unknown = TopK(log(kept), torch.tensor([[1, 2, 3]]), torch.tensor([math.nan], dtype=torch.float64))
    missing = TopK(log(kept), torch.tensor([[1, 2, 3]]))
    for a, b in zip(
        value_and_gradient(student, unknown, labels), value_and_gradient(student, missing, labels), strict=True
    ):
        assert torch.equal(a, b)


def test_a_teacher_that_keeps_the_label_alone_and_gives_it_all_says_nothing():
    student, labels = torch.tensor([[1.0, 0.5, 0.0, -0.5]]), torch.tensor([0])
    for dtype in (torch.float32, torch.float64):
        leaf = student.to(dtype).requires_grad_()
        loss = top_k_tpkd_loss(leaf, torch.zeros(1, 1, dtype=dtype), torch.tensor([[0]]), labels)
        loss.backward()
        expected = student.to(dtype).requires_grad_()
        torch.nn.functional.cross_entropy(expected, labels).backward()
        torch.testing.assert_close(leaf.grad, expected.grad)


@pytest.mark.parametrize("lead", [50.0, 200.0, 1000.0])
def test_a_rest_that_the_student_has_all_but_ruled_out_keeps_its_proportions(lead):
    """In float32 the exponentials of the rest would vanish beside those of the kept classes."""
    student, teacher, labels = make_pairs("random", 8, 50, seed=5)
    top_k = truncated(teacher, labels, 3)
    student = student.scatter_add(-1, top_k.indices, torch.full((8, 3), lead, dtype=torch.float64))
    values, gradient = value_and_gradient(student.float(), top_k.map(_single), labels, reduction="none")
    expected = expected_top_k(student.float(), top_k.map(_single), labels)
    torch.testing.assert_close(values.double(), expected.losses, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(gradient.double(), expected.directions, rtol=0, atol=2e-6)


def hard_cases() -> dict[str, tuple[Tensor, TopK]]:
    """Students and teachers at the edges of what is known, in the dtype of the kernel."""
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(3, 5, generator=generator)
    log_probs = torch.randn(3, 5, generator=generator).log_softmax(-1)
    others = torch.tensor([[1, 2, 3, 4], [0, 2, 3, 4], [0, 1, 3, 4]])
    nothing = others[:, :2].clone()
    nothing[1] = -1  # the teacher of this row says nothing at all
    kept = log_probs.gather(-1, others)
    return {
        "no row knows anything": (student, TopK(kept[:, :2], torch.full((3, 2), -1))),
        "one row knows nothing": (student, TopK(kept[:, :2], nothing)),
        "all incorrect classes kept, far below the label": (
            student - 1000 * torch.ones(3, 5).scatter(-1, torch.arange(3).unsqueeze(-1), 0),
            TopK(kept, others, log_probs.diagonal()),
        ),
        "all incorrect classes kept, all logits low": (student - 1000, TopK(kept, others, log_probs.diagonal())),
        "nan for a kept class": (student, TopK(kept.masked_fill(others == 3, math.nan), others, log_probs.diagonal())),
        "nan for all that was kept": (student, TopK(kept[:, :2] * math.nan, others[:, :2])),
        "negative by a bit": (student, TopK(torch._neg_view(-kept[:, :2]), others[:, :2])),
    }


@pytest.mark.parametrize("temperature", [1.0, 4.0])
@pytest.mark.parametrize("case", hard_cases())
def test_at_the_edges_of_what_is_known_single_precision_says_the_same(case, temperature):
    (student, top_k), labels = hard_cases()[case], torch.arange(3)
    settings = {"reduction": "none", "temperature": temperature}
    values, gradient = value_and_gradient(student, top_k, labels, **settings)
    if "nan" in case:
        assert values.isnan().all()
        assert gradient.isnan().any(-1).all()
    else:
        exact_values, exact_gradient = value_and_gradient(student.double(), top_k, labels, **settings)
        torch.testing.assert_close(values.double(), exact_values, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(gradient.double(), exact_gradient, rtol=0, atol=1e-6)


def _single(values: Tensor) -> Tensor:
    return values.float() if values.is_floating_point() else values


def test_masks_reductions_counts_and_shapes():
    student, teacher, labels = make_pairs("random", 12, 30, seed=6, dtype=torch.float32)
    top_k = truncated(teacher, labels, 5).map(_single)
    masked = labels.clone()
    masked[[1, 7]] = -100
    student[1] = torch.nan
    kept = masked != -100
    each, gradient = value_and_gradient(student, top_k, masked, reduction="none")
    assert (each[~kept] == 0).all()
    assert (gradient[~kept] == 0).all()
    mean, _ = value_and_gradient(student, top_k, masked)
    torch.testing.assert_close(mean, each.sum() / 10)
    part, _ = value_and_gradient(student[:6], top_k[:6], masked[:6], num_items=10)
    torch.testing.assert_close(part, each[:6].sum() / 10)
    tokens = top_k.map(lambda values: values.reshape(3, 4, *values.shape[1:]))
    shaped, by_token = value_and_gradient(student.reshape(3, 4, 30), tokens, masked.reshape(3, 4), reduction="none")
    torch.testing.assert_close(shaped.flatten(), each)
    torch.testing.assert_close(by_token.reshape(12, 30), gradient)
    vector, _ = value_and_gradient(student[0], top_k[0], masked[0])
    torch.testing.assert_close(vector, each[0])
    # The plain loss takes it as well, with the classes where cross-entropy has them.
    second = student.reshape(3, 4, 30).movedim(-1, 1).clone().requires_grad_()
    TPKDLoss(reduction="none")(second, tokens, masked.reshape(3, 4)).sum().backward()
    torch.testing.assert_close(second.grad.movedim(1, -1), by_token)
    torch.testing.assert_close(tpkd_loss(student[0], top_k[0], masked[0]), each[0])


@each_known
@pytest.mark.parametrize("name", ["tpkd", "tpkd-no-ce", "tpkd-no-projection", "compensation-only"])
def test_objectives_take_it_with_classes_on_the_second_axis(name, known):
    from tpkd import named_direction

    label, rest = KNOWN[known]
    student, teacher, labels = make_pairs("random", 12, 9, seed=6)
    top_k = truncated(teacher, labels, 4, label=label, rest=rest)
    objective = create(name, beta=0.8, temperature=2.0)
    leaf = student.reshape(3, 4, 9).movedim(-1, 1).requires_grad_()
    shaped = top_k.map(lambda values: values.reshape(3, 4, *values.shape[1:]))
    objective(leaf, shaped, labels.reshape(3, 4), reduction="sum").backward()
    expected = named_direction(name, student, top_k, labels, beta=0.8, temperature=2.0)
    torch.testing.assert_close(leaf.grad.movedim(1, -1).reshape(12, 9), expected, rtol=0, atol=1e-12)


def test_what_takes_a_truncated_teacher_is_what_the_contract_says():
    taken = {name for name in names() if create(name).takes_top_k}
    assert taken == {"ce", "tpkd", "tpkd-no-ce", "tpkd-no-projection", "compensation-only"}
    assert create("kd", temperature=1.0).takes_top_k
    student, teacher, labels = make_pairs("random", 4, 9, seed=6)
    top_k = truncated(teacher, labels, 4)
    for name in ("kl-dist", "dkd", "dp-u", "dp-s", "xe-kl", "safe-full-kl"):
        with pytest.raises(ValueError, match=f"teacher_logits: objective '{name}' needs all classes"):
            create(name)(student, top_k, labels)
    with pytest.raises(ValueError, match=r"objective 'kd' needs all classes, .* set temperature=1"):
        create("kd")(student, top_k, labels)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda top: {"top_indices": top["top_indices"].float()}, "indices: expected integer classes"),
        (lambda top: {"top_indices": top["top_indices"][:, :2]}, r"indices: expected the shape of log_probs"),
        (lambda top: {"top_indices": top["top_indices"] + 9}, r"top_indices: expected classes from -1 \(empty\) to 8"),
        (lambda top: {"top_indices": top["top_indices"] - 9}, r"top_indices: expected classes from -1 \(empty\) to 8"),
        (lambda top: {"label_log_probs": torch.zeros(3)}, r"label_log_probs: expected shape \(4,\), got \(3,\)"),
        (lambda top: {"rest_log_probs": torch.zeros(4, dtype=torch.long)}, "rest_log_probs: expected floating"),
        (lambda top: {"labels": torch.tensor([0, 1, 2, 9])}, "labels: expected class indices from 0 to 8"),
        (lambda top: {"labels": torch.eye(4, 9)}, "labels: expected integer class indices with a truncated teacher"),
        (lambda top: {"temperature": 0.0}, "temperature: expected a positive finite number"),
        (lambda top: {"beta": -1.0}, "beta: expected"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    student, teacher, labels = make_pairs("random", 4, 9, seed=6, dtype=torch.float32)
    top_k = truncated(teacher, labels, 4).map(_single)
    given = {"top_log_probs": top_k.log_probs, "top_indices": top_k.indices, "labels": labels}
    with pytest.raises(ValueError, match=message):
        top_k_tpkd_loss(student, **(given | change(given)))


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_linear_head_in_chunks_is_the_loss_of_its_logits(monkeypatch, dtype, reduction):
    monkeypatch.setattr(linear_module, "_CHUNK_BYTES", 3 * 40 * 8)
    generator = torch.Generator().manual_seed(0)
    features, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((10, 6), (40, 6), (40,))
    )
    _, teacher, labels = make_pairs("random", 10, 40, seed=1, dtype=dtype)
    labels[3] = -100
    top_k = truncated(teacher, labels.clamp(min=0), 5).map(lambda x: x.to(dtype) if x.is_floating_point() else x)
    given, known = parts(top_k)
    results = []
    for loss in (linear_top_k_tpkd_loss, None):
        leaves = [x.clone().requires_grad_() for x in (features, weight, bias)]
        if loss is None:
            logits = torch.nn.functional.linear(leaves[0], leaves[1], leaves[2])
            value = top_k_tpkd_loss(logits, *given, labels, **known, temperature=2.0, reduction=reduction)
        else:
            value = loss(
                leaves[0], leaves[1], *given, labels, bias=leaves[2], **known, temperature=2.0, reduction=reduction
            )
        value.sum().backward()
        results.append([value.detach(), *(leaf.grad for leaf in leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=50 * EXACT[dtype])


def test_a_linear_head_at_a_temperature():
    features, weight = torch.randn(2, 6, 5).unbind()
    head, (_, teacher, labels) = torch.randn(9, 5), make_pairs("random", 6, 9, seed=1, dtype=torch.float32)
    del weight
    found = linear_tpkd_loss(features, head, teacher, labels, temperature=4.0)
    torch.testing.assert_close(found, tpkd_loss(features @ head.T, teacher, labels, temperature=4.0))


@each_known
def test_compiled_equals_eager(known):
    label, rest = KNOWN[known]
    torch.compiler.reset()
    compiled = torch.compile(top_k_tpkd_loss, fullgraph=True, backend="aot_eager")
    for num_classes in (20, 1500):  # below and above what the compiler itself does faster
        student, teacher, labels = make_pairs("random", 40, num_classes, seed=1, dtype=torch.float32)
        labels[5] = -100
        top_k = truncated(teacher, labels.clamp(min=0), 5, label=label, rest=rest).map(_single)
        for temperature in (1.0, 4.0):
            eager = value_and_gradient(student, top_k, labels, temperature=temperature)
            graph = value_and_gradient(student, top_k, labels, loss=compiled, temperature=temperature)
            for one, other in zip(eager, graph, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_autocast():
    student, teacher, labels = make_pairs("random", 8, 30, seed=1, dtype=torch.float32)
    top_k = truncated(teacher, labels, 5).map(_single)
    expected = value_and_gradient(student, top_k, labels)
    with torch.autocast("cpu", torch.bfloat16):
        found = value_and_gradient(student, top_k, labels)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_one_gradient_and_bounded_scratch_memory():
    student, teacher = torch.randn(2, 64, 4000)
    labels = torch.arange(64)
    top_k = truncated(teacher, labels, 64).map(_single)
    given, known = parts(top_k)
    leaf = student.requires_grad_()
    gradient = student.numel() * 4
    used = peak_bytes(lambda: top_k_tpkd_loss(leaf, *given, labels, **known).backward())
    assert used <= 2 * gradient + 4_500_000
