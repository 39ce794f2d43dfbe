"""A student on held-out text, beside the teacher's cache of it."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from tpkd.errors import InputError
from tpkd.files import open_safetensors, publish, writing
from tpkd.teacher.cache.tokens import TokenCache
from tpkd.theory.tokens import TokenState, token_state
from tpkd.tokens.record import TokenMetrics

AT_ONCE = 4
"""Blocks per forward pass."""


def student_logits(model: nn.Module, tokens: Tensor) -> Tensor:
    """What a causal language model says about every token but the first, `(batch, L - 1, K)`."""
    device = next(model.parameters()).device
    logits: Tensor = model(input_ids=tokens[:, :-1].to(device), use_cache=False).logits
    return logits


@torch.no_grad()
def token_states(model: nn.Module, cache: TokenCache, blocks: int) -> Iterator[TokenState]:
    """The state of every token of the first blocks of a cache, some blocks at a time."""
    was_training = model.training
    model.eval()
    try:
        for start in range(0, blocks, AT_ONCE):
            place = slice(start, min(start + AT_ONCE, blocks))
            documents, numbers = cache.documents[place], cache.blocks[place]
            tokens = cache.tokens(documents, numbers)
            logits = student_logits(model, tokens)
            logits = logits[..., : cache.num_classes].float().cpu()
            yield token_state(logits, cache.read(documents, numbers), tokens[:, 1:])
    finally:
        model.train(was_training)


def evaluate(
    model: nn.Module, cache: TokenCache, num_tokens: int, start_margins: np.ndarray | None = None
) -> tuple[TokenMetrics, Float32[np.ndarray, " tokens"]]:
    """A student on the first tokens of held-out text, and the margin of each.

    Args:
        model: the student.
        cache: of the teacher, on held-out text.
        num_tokens: how many predictions count, at most all.
        start_margins: those of the same tokens at the start, at least as many.
    """
    per_block = cache.length - 1
    if num_tokens > len(cache) * per_block:
        available = len(cache) * per_block
        raise InputError(f"evaluation.tokens: expected at most {available} of {cache.directory}, found {num_tokens}")
    sums = dict.fromkeys(("loss", "agreement", "blocked_share", "conditional_loss", "transfer_cost"), 0.0)
    margins, left = [], num_tokens
    for state in token_states(model, cache, -(-num_tokens // per_block)):
        values = {
            "loss": -state.label_log_prob,
            "agreement": state.agrees,
            "blocked_share": state.blocked,
            "conditional_loss": state.conditional_loss,
            "transfer_cost": state.transfer_cost,
        }
        for name, value in values.items():
            sums[name] += float(value.reshape(-1)[:left].double().sum())
        margins.append(state.margin.reshape(-1)[:left].numpy())
        left -= len(margins[-1])
    found = np.concatenate(margins)
    means = {name: total / num_tokens for name, total in sums.items()}
    fell = None if start_margins is None else float((found < start_margins[:num_tokens]).mean())
    return TokenMetrics(num_tokens, perplexity=math.exp(means["loss"]), margin_fell=fell, **means), found


def teacher_loss(cache: TokenCache, num_tokens: int) -> float:
    """The teacher's own loss on the same tokens: no model is needed."""
    blocks = -(-num_tokens // (cache.length - 1))
    found = cache.read(cache.documents[:blocks], cache.blocks[:blocks]).label_log_probs
    assert found is not None
    return -float(found.reshape(-1)[:num_tokens].double().mean())


def read_margins(path: Path, start: str) -> np.ndarray | None:
    """The margins at the start that a run before has written; None where there are none.

    Args:
        path: the file.
        start: what identifies student and text.

    Raises:
        InputError: they are those of another start.
    """
    if not path.exists():
        return None
    with open_safetensors(path, "np") as file:
        found = (file.metadata() or {}).get("start")
        if found != start:
            raise InputError(f"{path}: expected margins of the start {start[:9]}…, found {str(found)[:9]}…; remove it")
        margins: np.ndarray = file.get_tensor("margins")
        return margins


def write_margins(path: Path, margins: np.ndarray, start: str) -> None:
    """Publish the margins at the start, for this run and others of the same start."""
    from safetensors.numpy import save

    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path), publish(path) as file:
        file.write(save({"margins": margins.astype(np.float32)}, metadata={"start": start}))
