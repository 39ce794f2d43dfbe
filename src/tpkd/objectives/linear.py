"""The protected losses of a linear head over many classes, without ever holding all student logits."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import linear

from tpkd.geometry.directions import check_beta
from tpkd.geometry.inputs import TPKD_NEEDS_THREE_CLASSES, check_logits, check_positive, computation_dtype
from tpkd.geometry.top_k import TopK, check_top_k_range
from tpkd.objectives.injection import inject_gradients, refuse_second_derivative, refuse_transforms, scale_rows
from tpkd.objectives.kernels import values_and_direction
from tpkd.objectives.kernels.batch import Batch
from tpkd.objectives.reduction import check_reduction, denominator, flat_labels
from tpkd.objectives.weights import weight_rows

_CHUNK_BYTES = 64 * 2**20
"""Student logits that exist at a time."""


def linear_tpkd_loss(
    features: Float[Tensor, "*positions D"],
    head_weight: Float[Tensor, "K D"],
    teacher_logits: Float[Tensor, "*positions K"],
    labels: Int[Tensor, "*positions"],
    *,
    bias: Float[Tensor, "K"] | None = None,
    beta: float = 0.5,
    temperature: float = 1.0,
    sample_weights: Float[Tensor, "..."] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: float | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """`tpkd_loss` of the logits `features @ head_weight.T + bias`, in memory that does not grow with their number.

    Loss and gradients with respect to features, weight and bias are accumulated over chunks of rows; beside them, one
    chunk of logits is held.

    Args:
        features: `(D,)`, `(N, D)` or, for tokens, `(N, d1, ..., D)`: as for `torch.nn.Linear`, features come last.
        head_weight: `(K, D)` with K >= 3, as `torch.nn.Linear` stores it.
        teacher_logits: the shape of `features` with K in the place of D; no gradient flows to it.
        labels: integer classes, the shape of `features` without D.
        bias: `(K,)` or none.
        beta: see `tpkd_loss`, as `temperature`, `ignore_index`, `reduction`, `num_items` and `sample_weights`.

    Returns:
        What `tpkd_loss` returns. With `"none"` the backward pass computes the logits a second time.

    Example:
        >>> features, weight = torch.eye(2, requires_grad=True), torch.zeros(3, 2, requires_grad=True)
        >>> loss = linear_tpkd_loss(features, weight, torch.zeros(2, 3), torch.tensor([0, 1]))
        >>> loss.backward()
        >>> loss.detach(), weight.grad
        (tensor(1.0986), tensor([[-0.3333,  0.1667],
                [ 0.1667, -0.3333],
                [ 0.1667,  0.1667]]))
    """
    _check_head(features, head_weight, bias)
    check_logits("teacher_logits", teacher_logits)
    expected = (*features.shape[:-1], len(head_weight))
    if teacher_logits.shape != expected:
        raise ValueError(f"teacher_logits: expected shape {expected}, got {tuple(teacher_logits.shape)}")
    teacher = teacher_logits.detach().reshape(-1, len(head_weight))
    settings = _Settings(beta, temperature, ignore_index, reduction, num_items, sample_weights)
    return _linear_loss((features, head_weight, bias), teacher, labels, settings)


def linear_top_k_tpkd_loss(
    features: Float[Tensor, "*positions D"],
    head_weight: Float[Tensor, "K D"],
    top_log_probs: Float[Tensor, "*positions k"],
    top_indices: Int[Tensor, "*positions k"],
    labels: Int[Tensor, "*positions"],
    *,
    label_log_probs: Float[Tensor, "*positions"] | None = None,
    rest_log_probs: Float[Tensor, "*positions"] | None = None,
    bias: Float[Tensor, "K"] | None = None,
    beta: float = 0.5,
    temperature: float = 1.0,
    sample_weights: Float[Tensor, "..."] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: float | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """`top_k_tpkd_loss` of the logits `features @ head_weight.T + bias`: neither network's are held whole.

    EXTENSIONS 2. See `linear_tpkd_loss` for features, weight and bias, and `top_k_tpkd_loss` for the teacher.

    Example:
        >>> features, weight = torch.eye(2, requires_grad=True), torch.zeros(4, 2, requires_grad=True)
        >>> top = torch.tensor([[0.5, 0.2], [0.4, 0.4]]).log(), torch.tensor([[0, 3], [1, 2]])
        >>> loss = linear_top_k_tpkd_loss(features, weight, *top, torch.tensor([0, 1]))
        >>> loss.backward()
        >>> loss.detach(), weight.grad.shape
        (tensor(1.4465), torch.Size([4, 2]))
    """
    _check_head(features, head_weight, bias)
    top_k = TopK(top_log_probs, top_indices, label_log_probs, rest_log_probs)
    if top_k.shape != features.shape[:-1]:
        expected = f"the positions of features {tuple(features.shape[:-1])}"
        raise ValueError(f"top_log_probs: expected {expected}, got {tuple(top_k.shape)}")
    check_top_k_range(top_k, len(head_weight))
    settings = _Settings(beta, temperature, ignore_index, reduction, num_items, sample_weights)
    return _linear_loss((features, head_weight, bias), top_k.rows(), labels, settings)


@dataclass(frozen=True)
class _Settings:
    beta: float
    temperature: float
    ignore_index: int
    reduction: str
    num_items: float | Tensor | None
    sample_weights: Tensor | None


_Inputs = tuple[Tensor, Tensor, Tensor | None]


def _linear_loss(inputs: _Inputs, teacher: Tensor | TopK, labels: Tensor, settings: _Settings) -> Tensor:
    features, head_weight, bias = inputs
    check_beta(settings.beta)
    check_positive("temperature", settings.temperature)
    check_reduction(settings.reduction, settings.num_items, weighted=settings.sample_weights is not None)
    refuse_transforms(*inputs)
    y, valid = flat_labels(labels, features.shape[:-1], len(head_weight), settings.ignore_index)
    weights: Tensor | None = None
    if settings.sample_weights is not None:
        weights, valid = weight_rows(settings.sample_weights, labels.shape, computation_dtype(features), valid)
    inputs = (features.reshape(-1, features.shape[-1]), head_weight, bias)
    wanted = tuple(torch.is_grad_enabled() and x is not None and x.requires_grad for x in inputs)
    lesson = _Lesson(teacher, y, valid, settings.beta, settings.temperature)
    if settings.reduction == "none":
        recomputed: Tensor = _Recompute.apply(lesson, wanted, *inputs)  # type: ignore[no-untyped-call]
        weighed = recomputed if weights is None else recomputed * weights
        return weighed.reshape(labels.shape)
    values, gradients = _accumulate(inputs, lesson, wanted, weights)
    total = values.sum() if weights is None else (values * weights).sum()
    if any(wanted):
        total = inject_gradients(inputs, gradients, total)
    return total if settings.reduction == "sum" else total / denominator(y.shape[0], valid, settings.num_items, weights)


def _check_head(features: Tensor, head_weight: Tensor, bias: Tensor | None) -> None:
    check_logits("features", features, min_classes=1)
    if not isinstance(head_weight, Tensor) or not head_weight.is_floating_point() or head_weight.ndim != 2:
        found = tuple(head_weight.shape) if isinstance(head_weight, Tensor) else type(head_weight).__name__
        raise ValueError(f"head_weight: expected a floating-point tensor of shape (K, D), got {found}")
    num_classes, width = head_weight.shape
    if features.shape[-1] != width:
        raise ValueError(f"features: expected {width} features on the last axis, got {tuple(features.shape)}")
    if num_classes < 3:
        raise ValueError(f"head_weight: expected at least 3 classes, got {num_classes}; {TPKD_NEEDS_THREE_CLASSES}")
    if bias is not None and (not isinstance(bias, Tensor) or bias.shape != (num_classes,)):
        found = tuple(bias.shape) if isinstance(bias, Tensor) else type(bias).__name__
        raise ValueError(f"bias: expected shape {(num_classes,)}, got {found}")


@dataclass(frozen=True)
class _Lesson:
    """What is taught to the rows, whatever their logits are."""

    teacher: Float[Tensor, "rows K"] | TopK
    labels: Int[Tensor, "rows"]
    valid: Bool[Tensor, "rows"] | None
    beta: float
    temperature: float


def _accumulate(
    inputs: _Inputs, lesson: _Lesson, wanted: tuple[bool, ...], weights: Float[Tensor, "rows"] | None = None
) -> tuple[Float[Tensor, "rows"], tuple[Tensor | None, ...]]:
    """The loss of every row, and the wanted gradients of their sum under `weights`, which the losses are without."""
    features, head_weight = inputs[0].detach(), inputs[1].detach()
    bias = None if inputs[2] is None else inputs[2].detach()
    # Sums over many rows are kept in float32 at least; autograd returns them in the dtype of the parameter.
    sums = torch.promote_types(head_weight.dtype, torch.float32)
    features_gradient = torch.empty_like(features) if wanted[0] else None
    weight_gradient = torch.zeros_like(head_weight, dtype=sums) if wanted[1] else None
    bias_gradient = torch.zeros_like(bias, dtype=sums) if bias is not None and wanted[2] else None
    values = []
    chunk = max(1, _CHUNK_BYTES // (len(head_weight) * sums.itemsize))
    for start in range(0, len(features), chunk):
        part = slice(start, start + chunk)
        mask = None if lesson.valid is None else lesson.valid[part]
        # An ignored row may hold NaN, and zero times NaN would spread to every class of the weight.
        rows = features[part] if mask is None else features[part].masked_fill(~mask.unsqueeze(-1), 0.0)
        logits = linear(rows, head_weight, bias)
        rows_of_teacher, classes = lesson.teacher[part], lesson.labels[part]
        settings = (lesson.beta, 1.0, any(wanted), lesson.temperature)
        found = values_and_direction(Batch(logits, rows_of_teacher, classes, mask, *settings, overwrite=True))
        values.append(found.losses)
        direction = found.direction
        if direction is None:
            continue
        if weights is not None:
            scale_rows(direction, weights[part])
        if features_gradient is not None:
            features_gradient[part] = direction @ head_weight.to(direction.dtype)
        if weight_gradient is not None:
            _add_product(weight_gradient, direction, rows.to(direction.dtype))
        if bias_gradient is not None:
            bias_gradient += direction.sum(0, dtype=sums)
        del logits, direction, found  # before the next chunk is made
    losses = torch.cat(values) if values else features.new_empty(0, dtype=sums)
    return losses, (features_gradient, weight_gradient, bias_gradient)


def _add_product(total: Float[Tensor, "K D"], direction: Float[Tensor, "rows K"], features: Tensor) -> None:
    if direction.dtype == torch.float16:  # a sum over rows may overflow
        direction, features = direction.to(total.dtype), features.to(total.dtype)
    if direction.dtype == total.dtype:
        total.addmm_(direction.T, features)
    else:
        total += direction.T @ features


class _Recompute(torch.autograd.Function):
    """One loss for each row: their weights are known in the backward pass only, which runs through the chunks again."""

    @staticmethod
    def forward(
        ctx: Any,
        lesson: _Lesson,
        wanted: tuple[bool, ...],
        features: Tensor,
        head_weight: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(features, head_weight, bias)
        ctx.lesson, ctx.wanted = lesson, wanted
        ctx.versions = _versions(lesson)
        # backward() is usually called outside the autocast context of the loss.
        device = features.device.type
        ctx.autocast = (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
        nothing = (False, False, False)
        return _accumulate((features, head_weight, bias), lesson, nothing)[0]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        if _versions(ctx.lesson) != ctx.versions:
            raise RuntimeError(
                "teacher or labels were modified by an inplace operation between the loss and its backward pass, which "
                "computes the logits a second time: pass copies of them"
            )
        with torch.autocast(*ctx.autocast):
            gradients = _accumulate(ctx.saved_tensors, ctx.lesson, ctx.wanted, grad_outputs[0])[1]
        return None, None, *gradients


def _versions(lesson: _Lesson) -> list[int]:
    """How often each tensor was written to, which torch itself checks for what it saves."""
    teacher = lesson.teacher
    tensors = [teacher.log_probs, teacher.indices] if isinstance(teacher, TopK) else [teacher]
    return [tensor._version for tensor in (*tensors, lesson.labels)]
