"""The loss of a linear head in chunks against the dense loss of its logits."""

import pytest
import torch
from benchmarks.memory import peak_bytes
from torch import Tensor
from torch.nn.functional import linear

from strategies import INTEGER_TYPES, labels_of_type
from tpkd.objectives import linear as linear_module
from tpkd.objectives.linear import linear_tpkd_loss
from tpkd.objectives.tpkd import tpkd_loss

TOLERANCE = {
    torch.float64: 1e-12,  # sums of the same numbers in another order
    torch.float32: 2e-6,
    torch.bfloat16: 1.6e-2,  # one rounding of a factor to 7 bits
    torch.float16: 2e-3,
}


def head(positions: tuple[int, ...], width: int, num_classes: int, dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    """Features, weight, bias, teacher logits and labels."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((*positions, width), (num_classes, width), (num_classes,), (*positions, num_classes))
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    return [*tensors, torch.randint(num_classes, positions, generator=generator)]


def dense(features: Tensor, weight: Tensor, bias: Tensor | None, teacher: Tensor, labels: Tensor, **settings) -> Tensor:
    logits = linear(features, weight, bias)
    if logits.ndim > 2:
        logits, teacher = logits.movedim(-1, 1), teacher.movedim(-1, 1)
    return tpkd_loss(logits, teacher, labels, **settings)


def chunked(
    features: Tensor, weight: Tensor, bias: Tensor | None, teacher: Tensor, labels: Tensor, **settings
) -> Tensor:
    return linear_tpkd_loss(features, weight, teacher, labels, bias=bias, **settings)


def value_and_gradients(loss, tensors: list[Tensor], weights: Tensor | None, **settings) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in tensors[:3]]
    value = loss(*leaves, *tensors[3:], **settings)
    (value if weights is None else (value * weights).sum()).backward()
    return [value.detach(), *(leaf.grad for leaf in leaves)]


def assert_same(tensors: list[Tensor], weights: Tensor | None = None, **settings) -> None:
    found = value_and_gradients(chunked, tensors, weights, **settings)
    expected = value_and_gradients(dense, tensors, weights, **settings)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        scale = float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=0, atol=scale * TOLERANCE[tensors[0].dtype])


@pytest.fixture(params=[1, 5, 64], ids=lambda rows: f"{rows}-rows-a-chunk")
def small_chunks(request, monkeypatch):
    """Chunks of a few rows of 33 classes, that the number of positions is not a multiple of."""
    monkeypatch.setattr(linear_module, "_CHUNK_BYTES", request.param * 33 * 8)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("positions", [(), (24,), (4, 6), (2, 3, 4)])
def test_equals_the_dense_loss(dtype, positions):
    assert_same(head(positions, 7, 33, dtype))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("ignored", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_ignored_tokens(ignored, reduction):
    tensors = head((4, 6), 7, 33, torch.float64)
    mask = torch.rand(4, 6, generator=torch.Generator().manual_seed(1)) < ignored
    tensors[-1][mask] = -100
    tensors[3][mask] = torch.nan
    assert_same(tensors, reduction=reduction)
    if reduction == "mean":
        assert_same(tensors, num_items=50)
        assert_same(tensors, num_items=torch.tensor(50))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_what_an_ignored_row_holds_reaches_no_gradient(reduction):
    features, weight, bias, teacher, labels = head((24,), 7, 33, torch.float64)
    labels[3] = -100
    for poison in (0.0, torch.nan):
        features[3] = poison
        tensors = [x.clone().requires_grad_() for x in (features, weight, bias)]
        linear_tpkd_loss(tensors[0], tensors[1], teacher, labels, bias=tensors[2], reduction=reduction).sum().backward()
        gradients = [x.grad for x in tensors]
        if poison == 0.0:
            expected = gradients
    assert all(map(torch.equal, gradients, expected))
    assert torch.equal(gradients[0][3], torch.zeros(7, dtype=torch.float64))


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("features_dtype", [None, torch.float32])
def test_backward_outside_of_the_autocast_of_the_loss(reduction, dtype, features_dtype):
    features, weight, bias, teacher, labels = head((24,), 7, 33, torch.float32)
    gradients = []
    for is_dense in (True, False):
        leaves = [x.clone().requires_grad_() for x in (features, weight, bias)]
        with torch.autocast("cpu", dtype):
            rows = leaves[0].to(features_dtype or dtype)
            if is_dense:
                loss = tpkd_loss(linear(rows, *leaves[1:]), teacher, labels, reduction=reduction)
            else:
                loss = linear_tpkd_loss(rows, leaves[1], teacher, labels, bias=leaves[2], reduction=reduction)
        loss.mean().backward()
        gradients.append([x.grad for x in leaves])
    for dense, chunked in zip(*gradients, strict=True):
        assert dense.dtype == chunked.dtype == torch.float32
        torch.testing.assert_close(chunked, dense, rtol=0, atol=2 * TOLERANCE[dtype] * float(dense.abs().max()))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_rows_with_weights(dtype):
    tensors = head((4, 6), 7, 33, dtype)
    tensors[-1][1, 2] = -100
    weights = torch.linspace(-1, 2, 24, dtype=torch.promote_types(dtype, torch.float32)).reshape(4, 6)
    assert_same(tensors, weights, reduction="none", beta=2.0)


def test_gradients_only_where_wanted():
    features, weight, _, teacher, labels = head((24,), 7, 33, torch.float64)
    for wanted in (features, weight):
        wanted.requires_grad_()
        linear_tpkd_loss(features, weight, teacher, labels).backward()
        linear_tpkd_loss(features, weight, teacher, labels, reduction="none").sum().backward()
        expected = torch.autograd.grad(dense(features, weight, None, teacher, labels) * 25, wanted)[0]
        torch.testing.assert_close(wanted.grad, expected, rtol=1e-10, atol=1e-12)
        wanted.requires_grad_(False)
    assert not linear_tpkd_loss(features, weight, teacher, labels).requires_grad


def test_many_rows_do_not_overflow_half_precision():
    features, weight, _, teacher, _ = head((3000,), 2, 5, torch.float16)
    features = (features.abs() * 100).requires_grad_()
    weight.zero_().requires_grad_()
    linear_tpkd_loss(features, weight, teacher, torch.zeros(3000, dtype=torch.long)).backward()
    assert weight.grad.isfinite().all()
    assert weight.grad[0].abs().min() > 10


def test_one_backward_only():
    features, weight, _, teacher, labels = head((24,), 7, 33, torch.float64)
    weight.requires_grad_()
    for reduction in ("mean", "none"):
        loss = linear_tpkd_loss(features, weight, teacher, labels, reduction=reduction).sum()
        with pytest.raises(RuntimeError, match="create_graph"):
            torch.autograd.grad(loss, weight, create_graph=True)
        loss = linear_tpkd_loss(features, weight, teacher, labels, reduction=reduction).sum()
        loss.backward()
        with pytest.raises(RuntimeError, match=r"second (backward|time)"):
            loss.backward()


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_forward_mode_is_refused_instead_of_giving_zero(position, reduction):
    *inputs, teacher, labels = head((24,), 7, 33, torch.float64)

    def loss(moving):
        features, weight, bias = (*inputs[:position], moving, *inputs[position + 1 :])
        return linear_tpkd_loss(features, weight, teacher, labels, bias=bias, reduction=reduction)

    with pytest.raises(NotImplementedError, match="forward-mode differentiation"):
        torch.func.jvp(loss, (inputs[position],), (torch.ones_like(inputs[position]),))


def test_memory_does_not_grow_with_the_rows():
    width, num_classes = 16, 20000

    def beyond_gradients(rows: int) -> int:
        features, weight, _, _, labels = head((rows,), width, num_classes, torch.float32)
        teacher = torch.zeros(1, num_classes).expand(rows, -1)
        features.requires_grad_(), weight.requires_grad_()
        peak = peak_bytes(lambda: linear_tpkd_loss(features, weight, teacher, labels).backward())
        return peak - 4 * (features.numel() + weight.numel())

    few, many = beyond_gradients(1000), beyond_gradients(2000)
    assert abs(many - few) <= 1000 * width * 4
    assert many <= linear_module._CHUNK_BYTES + 8e6


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"head_weight": torch.zeros(3)}, r"head_weight: expected .* \(K, D\), got \(3,\)"),
        ({"head_weight": torch.zeros(5, 3)}, r"features: expected 3 features on the last axis, got \(2, 4\)"),
        ({"teacher_logits": torch.zeros(2, 4)}, r"teacher_logits: expected shape \(2, 5\), got \(2, 4\)"),
        ({"bias": torch.zeros(4)}, r"bias: expected shape \(5,\), got \(4,\)"),
        ({"labels": torch.tensor([0, 5])}, r"labels: .* got 5 at position \(1,\)"),
        ({"beta": -1.0}, "beta: .* got -1"),
        ({"reduction": "max"}, "reduction: .* got 'max'"),
        ({"features": torch.zeros(2, 4, dtype=torch.long)}, "features: .* got torch.int64"),
    ],
)
def test_bad_input_is_named(changed, message):
    arguments = {
        "features": torch.zeros(2, 4),
        "head_weight": torch.zeros(5, 4),
        "teacher_logits": torch.zeros(2, 5),
        "labels": torch.tensor([0, 1]),
    }
    with pytest.raises(ValueError, match=message):
        linear_tpkd_loss(**(arguments | changed))


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_labels_mean_the_same_in_every_integer_type(reduction):
    for dtype in INTEGER_TYPES:
        features, weight, bias, teacher, _ = head((5,), 3, 300, torch.float32)
        labels = labels_of_type(dtype, 5, 300)
        for ignored in (-100, int(labels[1])):
            settings = {"reduction": reduction, "ignore_index": ignored}
            found = chunked(features, weight, bias, teacher, labels, **settings)
            assert torch.equal(found, chunked(features, weight, bias, teacher, labels.long(), **settings))
