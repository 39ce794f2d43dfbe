"""Logits of a network and vector-Jacobian products at them, by micro-batches, with the network left as it was found."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

Forward = Callable[[nn.Module, Any], Tensor]
"""How to get logits `(N, K)` from a model and its inputs, for models whose output is not a tensor."""


def network_logits(
    model: nn.Module, inputs: Any, *, microbatch: int | None = None, forward: Forward | None = None
) -> Float[Tensor, "N K"]:
    """The logits of a batch in eval mode, detached, in the network's own dtype.

    Args:
        model: any network; its flags, buffers, gradients and the random state are as before afterwards.
        inputs: a tensor, or a tuple, list or mapping of tensors (positional or keyword arguments), rows first.
        microbatch: rows to evaluate at a time; all by default.
        forward: `forward(model, inputs) -> logits`, for models whose output is not a tensor.

    Example:
        >>> network_logits(torch.nn.Identity(), torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[1., 2., 3.]])
    """
    with as_found(model), torch.no_grad():
        parts = [_logits(model, part, count, forward) for part, count in _microbatches(inputs, microbatch)]
        return torch.cat(parts)


def vector_jacobian_products(
    model: nn.Module,
    inputs: Any,
    cotangents: Float[Tensor, "M N K"],
    *,
    microbatch: int | None = None,
    forward: Forward | None = None,
) -> Float[Tensor, "M P"]:
    """Pull stacked output directions back to the parameters: sum_i J_i^T c_i for each stack c.

    Paper: appendix D.5. Only products are formed, one backward pass a stack and micro-batch; a Jacobian never is. The
    network runs in its own dtype, the sum over micro-batches in float64. Other arguments are those of `network_logits`.

    Shapes: cotangents `(M, N, K)`; returns float64 `(M, P)` over the P entries of `trainable_parameters(model)`.

    Example:
        >>> model = torch.nn.Linear(2, 3, bias=False)
        >>> inputs, cotangents = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.ones(1, 2, 3)
        >>> vector_jacobian_products(model, inputs, cotangents)
        tensor([[1., 2., 1., 2., 1., 2.]], dtype=torch.float64)
    """
    parameters = trainable_parameters(model)
    num_rows = count_rows(inputs)
    if cotangents.ndim != 3 or cotangents.shape[1] != num_rows:
        raise ValueError(f"cotangents: expected shape (M, {num_rows}, K), got {tuple(cotangents.shape)}")
    count_entries = sum(parameter.numel() for parameter in parameters)
    start = 0
    with as_found(model), torch.inference_mode(False), torch.enable_grad():
        # Unit scale before the cast: a stack of tiny directions must not underflow in a half-precision network.
        scales = cotangents.detach().double().abs().amax((1, 2), keepdim=True)
        scales = torch.where(scales > 0, scales, 1.0)
        scaled = cotangents.detach().double() / scales
        products = scaled.new_zeros(len(scaled), count_entries)
        for part, count in _microbatches(inputs, microbatch):
            logits = _logits(model, part, count, forward)
            _accumulate(products, logits, scaled[:, start : start + count], parameters)
            start += count
        return products * scales.squeeze(-1)


def trainable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters a step may move, in the order of `model.parameters()`; frozen ones are no part of the Jacobian.

    Example:
        >>> [tuple(p.shape) for p in trainable_parameters(torch.nn.Linear(2, 3))]
        [(3, 2), (3,)]
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError("model: expected at least one parameter with requires_grad=True, got none")
    return parameters


@contextmanager
def as_found(model: nn.Module) -> Iterator[None]:
    """Run a block in eval mode, then put back training flags, buffers and the random state.

    Each flag is set and restored by itself: a model whose layers differ stays so, and no `train()` override runs.

    Example:
        >>> model = torch.nn.Dropout()
        >>> with as_found(model):
        ...     inside = model.training
        >>> inside, model.training
        (False, True)
    """
    modules = list(model.modules())
    flags = [module.training for module in modules]
    buffers = [dict(module._buffers) for module in modules]
    values = [{name: b.clone() for name, b in held.items() if b is not None} for held in buffers]
    devices = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices):
        try:
            for module in modules:
                module.training = False
            yield
        finally:
            for module, flag, held, saved in zip(modules, flags, buffers, values, strict=True):
                module.training = flag
                module._buffers.clear()
                module._buffers.update(held)
                for name, value in saved.items():
                    _restore(held[name], value)


@contextmanager
def displaced(model: nn.Module, displacement: Float[Tensor, "P"]) -> Iterator[None]:
    """Add a flat displacement to the trainable parameters inside the block, and put the old values back bit for bit.

    Example:
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> before = model.weight.item()
        >>> with displaced(model, torch.tensor([0.5])):
        ...     moved = model.weight.item() - before
        >>> round(moved, 4), model.weight.item() == before
        (0.5, True)
    """
    parameters = trainable_parameters(model)
    pieces = torch.split(displacement, [parameter.numel() for parameter in parameters])
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        with torch.no_grad():
            for parameter, piece in zip(parameters, pieces, strict=True):
                parameter.add_(piece.view_as(parameter).to(parameter))
        yield
    finally:
        for parameter, value in zip(parameters, before, strict=True):
            _restore(parameter, value)


def count_rows(inputs: Any) -> int:
    """The number of rows that every tensor of the inputs has.

    Example:
        >>> count_rows({"input_ids": torch.zeros(5, 7), "attention_mask": torch.zeros(5, 7)})
        5
    """
    counts = {leaf.shape[0] for leaf in _leaves(inputs) if leaf.ndim > 0}
    if len(counts) != 1 or 0 in counts:
        raise ValueError(f"inputs: expected tensors with one common, positive number of rows, got {sorted(counts)}")
    return counts.pop()


def _restore(tensor: Tensor | None, value: Tensor) -> None:
    # An untouched tensor is not written: its version counter tells graphs that saved it whether they are still valid.
    if tensor is not None and not torch.equal(tensor, value):
        with torch.no_grad():
            tensor.copy_(value)


def _accumulate(products: Tensor, logits: Tensor, cotangents: Tensor, parameters: Sequence[Tensor]) -> None:
    if not logits.requires_grad:
        raise ValueError("model: expected logits that depend on its parameters, got logits without a graph")
    if cotangents.shape[1:] != logits.shape:
        raise ValueError(f"cotangents: expected {logits.shape[1]} classes, got {cotangents.shape[2]}")
    for row, cotangent in enumerate(cotangents.to(logits)):
        gradients = torch.autograd.grad(
            logits, parameters, cotangent, retain_graph=row + 1 < len(cotangents), allow_unused=True
        )
        start = 0
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                products[row, start : start + parameter.numel()] += gradient.to_dense().flatten().to(products.device)
            start += parameter.numel()


def _logits(model: nn.Module, inputs: Any, num_rows: int, forward: Forward | None) -> Tensor:
    if forward is not None:
        logits = forward(model, inputs)
    elif isinstance(inputs, Mapping):
        logits = model(**inputs)
    elif isinstance(inputs, (tuple, list)):
        logits = model(*inputs)
    else:
        logits = model(inputs)
    found = f"{tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[0] != num_rows:
        raise ValueError(
            f"model: expected a tensor of logits of shape ({num_rows}, K), got {found}; pass "
            "forward=lambda model, inputs: ... to say where the logits are"
        )
    return logits


def _microbatches(inputs: Any, microbatch: int | None) -> Iterator[tuple[Any, int]]:
    if microbatch is not None and microbatch < 1:
        raise ValueError(f"microbatch: expected a positive number of rows, got {microbatch}")
    num_rows = count_rows(inputs)
    size = microbatch or num_rows
    for start in range(0, num_rows, size):
        rows = slice(start, min(start + size, num_rows))
        yield _take(inputs, rows), rows.stop - rows.start


def _take(inputs: Any, rows: slice) -> Any:
    if isinstance(inputs, Tensor):
        # A tensor made in inference mode cannot be saved for a backward pass; its copy can.
        inputs = inputs.clone() if inputs.is_inference() else inputs
        return inputs[rows] if inputs.ndim > 0 else inputs
    if isinstance(inputs, Mapping):
        return {name: _take(value, rows) for name, value in inputs.items()}
    if isinstance(inputs, (tuple, list)):
        return tuple(_take(value, rows) for value in inputs)
    return inputs


def _leaves(inputs: Any) -> Iterator[Tensor]:
    if isinstance(inputs, Tensor):
        yield inputs
    elif isinstance(inputs, (Mapping, tuple, list)):
        for value in inputs.values() if isinstance(inputs, Mapping) else inputs:
            yield from _leaves(value)
