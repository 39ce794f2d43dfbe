"""Logits of a network and vector-Jacobian products at them, by micro-batches, with the network left as it was found."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

Forward = Callable[[nn.Module, Any], Tensor]
"""How to get logits `(N, K)` from a model and its inputs, for models whose output is not a tensor."""

_Products = list[list[Tensor]]
"""For each stack of directions, one tensor per parameter."""

_CHUNK = 2**18
"""Entries of each product cast to float64 at a time: worth sharing among threads, and small enough for their cache."""


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


class BatchJacobian:
    """The map from a batch of output directions back to the parameters, at one state of a network.

    Paper: appendix D.5. Only products J_i^T c are formed, one backward pass per stack of directions and micro-batch; a
    Jacobian never is. The network runs in its own dtype and eval mode, sums over micro-batches and inner products in
    float64. Arguments are those of `network_logits`; a batch that is one micro-batch is evaluated once and keeps its
    graph, so that `logits` costs nothing extra.

    Example:
        >>> model = torch.nn.Linear(2, 3, bias=False)
        >>> jacobian = BatchJacobian(model, torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        >>> jacobian.products(torch.ones(1, 2, 3))
        tensor([[1., 2., 1., 2., 1., 2.]], dtype=torch.float64)
        >>> jacobian.grams([torch.ones(1, 2, 3)])
        [tensor([[15.]], dtype=torch.float64)]
    """

    def __init__(
        self, model: nn.Module, inputs: Any, *, microbatch: int | None = None, forward: Forward | None = None
    ) -> None:
        """Check what was given; nothing is evaluated yet."""
        self._parameters = trainable_parameters(model)
        self._num_rows = count_rows(inputs)
        self._model, self._inputs, self._microbatch, self._forward = model, inputs, microbatch, forward
        self._attached: Tensor | None = None

    @property
    def logits(self) -> Float[Tensor, "N K"]:
        """The logits of the batch, detached, in the network's own dtype."""
        if self._in_parts:
            return network_logits(self._model, self._inputs, microbatch=self._microbatch, forward=self._forward)
        with _graph_mode(self._model):
            return self._whole_logits().detach()

    def products(self, cotangents: Float[Tensor, "M N K"]) -> Float[Tensor, "M P"]:
        """sum_i J_i^T c_i of each stack c, over the P entries of `trainable_parameters(model)`, in float64."""
        scaled, scale = _unit_scale(cotangents)
        return self._reduce([scaled], _flatten)[0].mul_(scale)

    def grams(self, groups: Sequence[Float[Tensor, "_ N K"]]) -> list[Float[Tensor, "_ _"]]:
        """The inner products b_i^T b_j of the products of each group, in float64, without forming `products`."""
        scaled, scales = zip(*map(_unit_scale, groups), strict=True)
        return [gram * s * s.mT for gram, s in zip(self._reduce(scaled, _gram), scales, strict=True)]

    @property
    def _in_parts(self) -> bool:
        return self._microbatch is not None and self._microbatch < self._num_rows

    def _whole_logits(self) -> Tensor:
        if self._attached is None:
            ((inputs, count),) = _microbatches(self._inputs, self._microbatch)
            self._attached = _logits(self._model, inputs, count, self._forward)
        return self._attached

    def _reduce(self, groups: Sequence[Tensor], reduce: Callable[[_Products], Tensor]) -> list[Tensor]:
        for group in groups:
            if group.shape[1] != self._num_rows:
                raise ValueError(f"cotangents: expected shape (M, {self._num_rows}, K), got {tuple(group.shape)}")
        totals: list[_Products] = []
        start = 0
        with _graph_mode(self._model):
            if not self._in_parts:
                # Group by group, so that the products of one are gone before those of the next are made.
                return [reduce(_products(self._whole_logits(), group, self._parameters)) for group in groups]
            for part, count in _microbatches(self._inputs, self._microbatch):
                logits = _logits(self._model, part, count, self._forward)
                rows = slice(start, start + count)
                for index, group in enumerate(groups):
                    products = _products(logits, group[:, rows], self._parameters)
                    if start == 0:
                        totals.append([[part.double() for part in parts] for parts in products])
                    else:
                        _add(totals[index], products)
                start += count
        return [reduce(total) for total in totals]


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


@contextmanager
def _graph_mode(model: nn.Module) -> Iterator[None]:
    with as_found(model), torch.inference_mode(False), torch.enable_grad():
        yield


def _unit_scale(cotangents: Tensor) -> tuple[Tensor, Tensor]:
    """Stacks with largest entry 1, and what was divided out: tiny directions must not underflow in half precision."""
    if cotangents.ndim != 3:
        raise ValueError(f"cotangents: expected shape (M, N, K), got {tuple(cotangents.shape)}")
    stacks = cotangents.detach().double()
    scales = stacks.abs().amax((1, 2), keepdim=True)
    scales = torch.where(scales > 0, scales, 1.0)
    return stacks / scales, scales.squeeze(-1)


def _products(logits: Tensor, cotangents: Tensor, parameters: Sequence[Tensor]) -> _Products:
    if not logits.requires_grad:
        raise ValueError("model: expected logits that depend on its parameters, got logits without a graph")
    if cotangents.shape[1:] != logits.shape:
        raise ValueError(f"cotangents: expected {logits.shape[1]} classes, got {cotangents.shape[2]}")
    pulled = (
        torch.autograd.grad(logits, parameters, cotangent, retain_graph=True, materialize_grads=True)
        for cotangent in cotangents.to(logits)
    )
    return [[gradient.to_dense().to(cotangents.device) for gradient in gradients] for gradients in pulled]


def _add(totals: _Products, products: _Products) -> None:
    for total, addend in zip(totals, products, strict=True):
        for held, part in zip(total, addend, strict=True):
            held += part


def _flatten(products: _Products) -> Tensor:
    return torch.stack([torch.cat([part.double().flatten() for part in parts]) for parts in products])


def _gram(products: _Products) -> Tensor:
    scratch = products[0][0].new_empty(len(products), _CHUNK, dtype=torch.float64)
    gram = scratch.new_zeros(len(products), len(products))
    for parts in zip(*products, strict=True):
        flat = [part.flatten() for part in parts]
        for start in range(0, flat[0].numel(), _CHUNK):
            block = scratch[:, : min(_CHUNK, flat[0].numel() - start)]
            for row, part in zip(block, flat, strict=True):
                row.copy_(part[start : start + _CHUNK])
            # Threads share a dot product; of two matrices this thin, MKL leaves the product to one.
            for i, row in enumerate(block):
                for j, other in enumerate(block[: i + 1]):
                    gram[i, j] += torch.dot(row, other)
    return gram + gram.tril(-1).mT


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
