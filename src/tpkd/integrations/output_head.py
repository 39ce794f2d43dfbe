"""The output head of a language model, from whose features a loss is computed without ever holding all logits.

- `output_head`: the linear layer that makes the logits; one that is not all of it is refused by name.
- `head_computes`: within it the head returns what a function makes of its features, inside the model's own forward.
- `marked_logits`, `same_values`: whether the model returns what its head makes.
- `feature_loss`, `feature_cross_entropy`, `feature_top_k`: what is made of them, a chunk of positions at a time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from tpkd.errors import InputError
from tpkd.geometry.top_k import TopK
from tpkd.objectives.linear import linear_top_k_tpkd_loss, linear_tpkd_loss
from tpkd.objectives.reduction import IGNORE_INDEX
from tpkd.objectives.tpkd import TPKD
from tpkd.teacher.cache.truncation import truncate_positions

CHUNK_LOGITS = 2**23
"""Logits of a chunk: 32 MB of float32. Two chunks exist while the next one is made."""
_CHANGES = (
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "output_multiplier",
)
"""Settings by which a network changes its logits after its head."""
_WAY_OUT = "leave linear_head out, which holds all logits"


def output_head(model: nn.Module) -> nn.Linear:
    """The linear layer from whose features alone a language model makes its logits.

    Tied weights and a bias are fine. A head that LoRA saves whole (`modules_to_save`) is unwrapped.

    Raises:
        InputError: there is none, it is not a plain linear layer, or the network scales or caps its logits.

    Example:
        >>> model = nn.Module()
        >>> model.get_output_embeddings = lambda: nn.Embedding(3, 4)
        >>> output_head(model)
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: linear_head: expected the output head of Module to be an nn.Linear, found Embedding; \
leave linear_head out, which holds all logits
    """
    name = type(model).__name__
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    for setting in _CHANGES:
        value = getattr(text, setting, None)
        if value not in (None, 1):
            raise InputError(
                f"linear_head: expected logits as the head makes them, found {setting}={value} in the configuration of "
                f"{name}, which changes them after it; {_WAY_OUT}"
            )
    head: Any = getattr(model, "get_output_embeddings", lambda: None)()
    saved, active = getattr(head, "modules_to_save", None), getattr(head, "active_adapters", None)
    if isinstance(saved, nn.ModuleDict) and active:
        head = saved[active[0]]
    if type(head) is not nn.Linear:
        found = "none" if head is None else type(head).__name__
        raise InputError(
            f"linear_head: expected the output head of {name} to be an nn.Linear, found {found}; {_WAY_OUT}"
        )
    return head


@contextmanager
def head_computes(head: nn.Linear, function: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Let the head return `function(features)` in the place of logits.

    The function runs inside the network's forward, where wrappers for several processes expect parameters to be used.

    Raises:
        InputError: the network did not call its head exactly once.

    Example:
        >>> head = nn.Linear(2, 3)
        >>> with head_computes(head, lambda features: features.sum()):
        ...     head(torch.ones(4, 2))
        tensor(8.)
    """
    calls = 0

    def compute(features: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return function(features)

    module: Any = head
    before = vars(head).get("forward")  # a hook of accelerate's is such an attribute, too
    module.forward = compute
    try:
        yield
    finally:
        del module.forward
        if before is not None:
            module.forward = before
    if calls != 1:
        raise InputError(f"linear_head: expected the network to call its output head once, found {calls} times")


def marked_logits(features: Float[Tensor, "*positions D"], head: nn.Linear) -> Float[Tensor, "*one K"]:
    """One row in the place of a head's logits, which a network that changes its logits does not return unchanged.

    A scale, a cap, a mask, a shift and a cut all change some of its values, which lie on both sides of zero.

    Example:
        >>> marked_logits(torch.zeros(2, 7, 4), nn.Linear(4, 5))
        tensor([[[-1000.,  -500.,     0.,   500.,  1000.]]])
    """
    row = torch.linspace(-1000, 1000, head.out_features, dtype=features.dtype, device=features.device)
    return row.reshape(*(1 for _ in features.shape[:-1]), -1)


def same_values(made: Tensor, returned: Tensor) -> bool:
    """Whether a network returned what its head made, in whatever precision; NaN equals NaN. It waits for a GPU.

    Example:
        >>> same_values(torch.tensor(torch.nan), torch.tensor(torch.nan)), same_values(torch.ones(2), torch.ones(1))
        (True, False)
    """
    if made.shape != returned.shape:
        return False
    return torch.allclose(returned.float(), made.float(), rtol=0.0, atol=0.0, equal_nan=True)


def feature_loss(
    objective: TPKD,
    features: Float[Tensor, "*positions D"],
    head: nn.Linear,
    teacher: Float[Tensor, "*positions K"] | TopK,
    targets: Int[Tensor, "*positions"],
    num_items: Tensor | None,
) -> Float[Tensor, ""]:
    """The protected loss of a head's features.

    Example:
        >>> head, targets = nn.Linear(2, 3), torch.tensor([[0, -100]])
        >>> feature_loss(TPKD(), torch.zeros(1, 2, 2), head, torch.zeros(1, 2, 3), targets, None).shape
        torch.Size([])
    """
    settings: dict[str, Any] = {
        "bias": head.bias,
        "beta": objective.beta,
        "temperature": objective.temperature,
        "num_items": num_items,
    }
    if isinstance(teacher, TopK):
        parts = (teacher.log_probs, teacher.indices, targets)
        settings |= {"label_log_probs": teacher.label_log_probs, "rest_log_probs": teacher.rest_log_probs}
        return linear_top_k_tpkd_loss(features, head.weight, *parts, **settings)
    return linear_tpkd_loss(features, head.weight, teacher, targets, **settings)


def feature_cross_entropy(
    features: Float[Tensor, "*positions D"], head: nn.Linear, targets: Int[Tensor, "*positions"]
) -> Float[Tensor, ""]:
    """The mean cross-entropy over valid positions, without a graph.

    Example:
        >>> feature_cross_entropy(torch.zeros(1, 2, 2), nn.Linear(2, 3, bias=False), torch.tensor([[0, -100]]))
        tensor(1.0986)
    """
    labels = targets.flatten()
    total = features.new_zeros((), dtype=torch.float32)
    for part, logits in chunked_logits(features, head):
        total += cross_entropy(logits.float(), labels[part], ignore_index=IGNORE_INDEX, reduction="sum")
    return total / (labels != IGNORE_INDEX).sum().clamp(min=1)


def feature_top_k(
    features: Float[Tensor, "*positions D"],
    head: nn.Linear,
    targets: Int[Tensor, "*positions"],
    k: int,
    num_classes: int | None = None,
) -> TopK:
    """The k largest of the first `num_classes` classes, the target's and the total of the others.

    Example:
        >>> feature_top_k(torch.zeros(1, 2, 2), nn.Linear(2, 5), torch.tensor([[0, -100]]), 3).log_probs.shape
        torch.Size([1, 2, 3])
    """
    parts = [
        top_k_of_logits(logits[:, :num_classes], targets.flatten()[part], k)
        for part, logits in chunked_logits(features, head)
    ]
    return join_top_k(parts, targets.shape)


def top_k_of_logits(logits: Float[Tensor, "*positions K"], targets: Int[Tensor, "*positions"], k: int) -> TopK:
    """The k largest classes of each row, the target's and the total of the others; an ignored target counts as class 0.

    What is computed of the logits on the way is held for some rows at a time.

    Example:
        >>> top_k_of_logits(torch.tensor([[0.2, 0.7, 0.1]]).log(), torch.tensor([2]), 1).rest_log_probs.exp()
        tensor([0.2000])
    """
    return truncate_positions(logits, targets.clamp(min=0), min(k, logits.shape[-1]))


def join_top_k(parts: list[TopK], shape: torch.Size) -> TopK:
    """Rows of a truncated teacher, one part after the other, as positions of this shape.

    Example:
        >>> part = TopK(torch.zeros(2, 1), torch.tensor([[0], [2]]))
        >>> join_top_k([part, part], torch.Size([2, 2])).indices.shape
        torch.Size([2, 2, 1])
    """

    def joined(name: str) -> Tensor | None:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else torch.cat(values).reshape(*shape, *values[0].shape[1:])

    names = ("log_probs", "indices", "label_log_probs", "rest_log_probs")
    return TopK(*map(joined, names))  # type: ignore[arg-type]


def chunked_logits(features: Float[Tensor, "*positions D"], head: nn.Linear) -> Iterator[tuple[slice, Tensor]]:
    """The logits of some rows at a time, without a graph, and which rows they are.

    Example:
        >>> [part for part, _ in chunked_logits(torch.zeros(2, 3, 4), nn.Linear(4, 2**22))]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    rows = features.detach().flatten(0, -2)
    with torch.no_grad():
        for part in row_chunks(len(rows), head.out_features):
            yield part, linear(rows[part], head.weight, head.bias)


def row_chunks(rows: int, num_classes: int) -> list[slice]:
    """Slices of rows that together have at most `CHUNK_LOGITS` logits, or one row.

    Example:
        >>> row_chunks(5, 2**22)
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    count = max(1, CHUNK_LOGITS // num_classes)
    return [slice(start, min(rows, start + count)) for start in range(0, rows, count)]
