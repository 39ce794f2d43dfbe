"""Losses that bring their own gradient: the one place where a given vector field enters autograd."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from tpkd.geometry.inputs import can_read_values

_BLOCK = 2**18
"""Half-precision elements that are widened at a time."""


def inject_direction(
    logits: Float[Tensor, "rows K"], direction: Float[Tensor, "rows K"], values: Float[Tensor, "*rows"]
) -> Float[Tensor, "*rows"]:
    """Give `values` the gradient `direction` with respect to `logits`; the backward pass consumes `direction`.

    Shapes: `values` holds one number for each row, or a single one for all rows together.

    Example:
        >>> logits = torch.zeros(1, 2, requires_grad=True)
        >>> inject_direction(logits, torch.tensor([[1.0, -1.0]]), torch.tensor([7.0])).sum().backward()
        >>> logits.grad
        tensor([[ 1., -1.]])
    """
    if torch.compiler.is_compiling():
        # Plain tensor code: a compiled graph frees what it saved, so torch itself refuses a second backward.
        # A class that is ruled out has a logit of -inf and no gradient: 0 * -inf must count as 0.
        direction = direction.detach()
        products = torch.where(direction == 0, 0.0, direction.to(values.dtype) * logits.to(values.dtype))
        surrogate = products.sum() if values.ndim == 0 else products.sum(-1)
        return values.detach() + (surrogate - surrogate.detach())
    return inject_gradients((logits,), (direction,), values)


def inject_gradients(
    inputs: Sequence[Tensor | None], gradients: Sequence[Tensor | None], values: Float[Tensor, "*rows"]
) -> Float[Tensor, "*rows"]:
    """Give `values` one gradient for each input; the backward pass consumes the gradients.

    Shapes: a gradient has the shape and dtype of its input, or is `None` where none is wanted; where `values` is not a
    single number, its axis is the first axis of every gradient.

    Example:
        >>> weight, bias = torch.zeros(2, requires_grad=True), torch.zeros((), requires_grad=True)
        >>> inject_gradients((weight, bias), (torch.ones(2), torch.tensor(3.0)), torch.tensor(7.0)).mul(2).backward()
        >>> weight.grad, bias.grad
        (tensor([2., 2.]), tensor(6.))
    """
    injected: Tensor = _Inject.apply((values, gradients), *inputs)  # type: ignore[no-untyped-call]
    return injected


def refuse_second_derivative() -> None:
    """Refuse a backward pass that records a graph of its own."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "create_graph=True: the TPKD direction is a vector field, not the derivative of the loss value, so "
            "there is no second derivative to take; call backward() without create_graph"
        )


def refuse_transforms(*inputs: Tensor | None) -> None:
    """Refuse forward-mode tangents and `torch.func`: an injected gradient exists in the backward pass only.

    Without this a Jacobian-vector product would be zero, silently, because the value is computed without a graph.

    Example:
        >>> refuse_transforms(torch.zeros(2), None)
    """
    if torch.compiler.is_compiling():
        return
    # Not public, but torch.autograd.Function asks the same before it refuses with a message that offers no alternative.
    if torch._C._are_functorch_transforms_active() or (
        forward_ad._current_level >= 0  # else there are no tangents, and asking for them takes microseconds
        and any(one is not None and forward_ad.unpack_dual(one).tangent is not None for one in inputs)  # type: ignore
    ):
        raise NotImplementedError(
            "torch.func (grad, vmap, jvp, ...) and forward-mode differentiation: the TPKD direction enters in the "
            "backward pass, which they replace; call backward(), or hand tpkd.directions(...).update, the gradient of "
            "each row, to torch.func.vjp of the network"
        )


class _Inject(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: tuple[Tensor, Sequence[Tensor | None]], *inputs: Tensor | None) -> Tensor:
        values, ctx.gradients = given
        return values  # not an argument of its own, so it may be returned as it is

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        if ctx.gradients is None:
            raise RuntimeError(
                "second backward through the same TPKD loss: its direction was used up by the first one to save "
                "memory; compute the loss again"
            )
        gradients, ctx.gradients = ctx.gradients, None
        if weight.ndim == 0 and can_read_values(weight) and weight.item() == 1:
            return None, *gradients  # the usual case needs no pass over the gradients
        for gradient in gradients:
            if gradient is not None:
                scale_rows(gradient, weight)
        return None, *gradients


def scale_rows(gradient: Float[Tensor, "..."], weight: Float[Tensor, "*rows"]) -> None:
    """Multiply in place by one number, or by one for each row, without widening half precision as a whole.

    Example:
        >>> gradient = torch.ones(2, 2, dtype=torch.bfloat16)
        >>> scale_rows(gradient, torch.tensor([2.0, 3.0]))
        >>> gradient
        tensor([[2., 2.],
                [3., 3.]], dtype=torch.bfloat16)
    """
    if weight.ndim == 0:
        gradient.mul_(weight)  # a number does not widen half precision
        return
    weight = weight.reshape(-1, *[1] * (gradient.ndim - 1))
    if gradient.dtype == weight.dtype:
        gradient.mul_(weight)
        return
    rows = max(1, _BLOCK * len(gradient) // max(1, gradient.numel()))
    for start in range(0, len(gradient), rows):
        part = gradient[start : start + rows]
        part.copy_(part * weight[start : start + rows])
