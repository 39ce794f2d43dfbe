"""Run a student over the text of a token cache, and sum up what is found."""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tpkd.diagnosis.tokens.record import Choice, InstructiveToken, TokenDiagnosis
from tpkd.diagnosis.tokens.totals import CONFIDENCES, FREQUENCIES, GroupSums, positions_of, quantities
from tpkd.geometry.top_k import TopK
from tpkd.teacher.cache.tokens import TokenCache
from tpkd.theory.tokens import TokenState, token_state

INSTRUCTIVE = 20
"""Tokens that are shown with their context."""
CHOICES = 3
CONTEXT = 48
"""Tokens of text before one that is shown."""
AFTER = 8

Logits = Callable[[Tensor], Tensor]
"""From tokens `(batch, L)` to the student's logits of all but the first, `(batch, L - 1, K)`."""


def diagnose_tokens(
    student: str,
    logits: Logits,
    cache: TokenCache,
    decode: Callable[[list[int]], str],
    *,
    blocks: int | None = None,
    batch_size: int = 4,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> TokenDiagnosis:
    """What a teacher can still teach a language model, and at what price: bounds, by groups of tokens.

    Args:
        student: its name.
        logits: the student.
        cache: of the teacher.
        decode: from tokens to text.
        blocks: how many blocks of the cache to look at, from the first; default: all.
        batch_size: blocks per forward pass.
        advance: told how many blocks are done, and of how many.
    """
    total = len(cache) if blocks is None else min(blocks, len(cache))
    frequencies = _frequencies(cache, total)
    positions = positions_of(cache.length - 1)
    sums = {
        "all": GroupSums(["all"]),
        "position": GroupSums(positions.names),
        "frequency": GroupSums(FREQUENCIES.names),
        "confidence": GroupSums(CONFIDENCES.names),
    }
    best: list[tuple[float, int, InstructiveToken]] = []
    number = itertools.count()
    for place, tokens, teacher in _batches(cache, total, batch_size):
        with torch.no_grad():
            said = logits(tokens)[..., : cache.num_classes].float().cpu()
        state = token_state(said, teacher, tokens[:, 1:])
        values = quantities(state)
        where = np.tile(np.arange(1, cache.length), len(tokens))
        groups = {
            "all": np.zeros(values.shape[1], np.int64),
            "position": positions.of(where),
            "frequency": FREQUENCIES.of(frequencies[tokens[:, 1:].reshape(-1).numpy()]),
            "confidence": CONFIDENCES.of(np.exp(-values[1])),
        }
        for name, numbers in groups.items():
            sums[name].add(numbers, values)
        for row, column in _largest(state.conditional_loss):
            value = float(state.conditional_loss[row, column])
            if len(best) == INSTRUCTIVE and value <= best[0][0]:
                continue
            shown = _instructive(cache, place + row, row, column, tokens, said, teacher, state, decode)
            keep = heapq.heappush if len(best) < INSTRUCTIVE else heapq.heapreplace
            keep(best, (value, -next(number), shown))
        advance(place + len(tokens), total)
    means = sums["all"].groups()[0].means
    assert means.loss is not None
    assert means.teacher_loss is not None
    return TokenDiagnosis(
        student=student,
        teacher=str(cache.directory),
        num_classes=cache.num_classes,
        top_k=cache.top_k,
        perplexity=math.exp(means.loss),
        teacher_perplexity=math.exp(means.teacher_loss),
        all=means,
        by_position=sums["position"].groups(),
        by_frequency=sums["frequency"].groups(),
        by_confidence=sums["confidence"].groups(),
        instructive=tuple(token for _, _, token in sorted(best, reverse=True, key=lambda item: item[:2])),
    )


def _batches(cache: TokenCache, total: int, batch_size: int) -> Iterator[tuple[int, Tensor, TopK]]:
    for start in range(0, total, batch_size):
        place = slice(start, min(start + batch_size, total))
        keys = cache.documents[place], cache.blocks[place]
        yield start, cache.tokens(*keys), cache.read(*keys)


def _frequencies(cache: TokenCache, total: int) -> np.ndarray:
    """How often each token is predicted in the text."""
    tokens = cache.tokens(cache.documents[:total], cache.blocks[:total])
    return np.bincount(tokens[:, 1:].reshape(-1).numpy(), minlength=cache.num_classes)


def _largest(values: Tensor) -> list[tuple[int, int]]:
    """The places of the largest values, at most as many as are shown."""
    flat = values.reshape(-1)
    found = flat.topk(min(INSTRUCTIVE, len(flat))).indices.tolist()
    return [divmod(place, values.shape[1]) for place in found]


def _instructive(
    cache: TokenCache,
    number: int,
    row: int,
    column: int,
    tokens: Tensor,
    logits: Tensor,
    teacher: TopK,
    state: TokenState,
    decode: Callable[[list[int]], str],
) -> InstructiveToken:
    text, place = tokens[row].tolist(), column + 1
    top = logits[row, column].log_softmax(-1).topk(CHOICES)

    def choices(log_probs: Any, indices: Any) -> tuple[Choice, ...]:
        pairs = zip(log_probs.tolist(), indices.tolist(), strict=True)
        return tuple(Choice(decode([index]), math.exp(value)) for value, index in pairs if index >= 0)

    return InstructiveToken(
        document=int(cache.documents[number]),
        block=int(cache.blocks[number]),
        place=place,
        before=decode(text[max(0, place - CONTEXT) : place]),
        token=decode([text[place]]),
        after=decode(text[place + 1 : place + 1 + AFTER]),
        conditional_loss=float(state.conditional_loss[row, column]),
        transfer_cost=float(state.transfer_cost[row, column]),
        may_be_blocked=bool(state.blocked[row, column]),
        student_probability=math.exp(float(state.label_log_prob[row, column])),
        teacher_probability=math.exp(float(state.teacher_label_log_prob[row, column])),
        student_choices=choices(top.values, top.indices),
        teacher_choices=choices(teacher.log_probs[row, column, :CHOICES], teacher.indices[row, column, :CHOICES]),
    )
