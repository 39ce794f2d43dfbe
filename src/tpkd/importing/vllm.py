"""The answers of a vLLM server to `/v1/completions`: the log-probabilities of a prompt, as JSON lines.

A request carries blocks as lists of token ids in `prompt`, with `prompt_logprobs: k`; docs/tokens.md shows it. Each
choice of the answer then has `prompt_logprobs`: null for the first token, and for every other one an object from token
id to `logprob` and `rank`, of the k largest and of the token itself. The older form, `echo: true` with `logprobs: k`,
is read where the server names tokens by their ids (`return_tokens_as_token_ids: true`).
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tpkd.errors import InputError
from tpkd.files import read_lines

TOKEN_ID = "token_id:"

Position = Mapping[int, float]
"""Token id -> log-probability."""


def read_answers(path: Path, tokens: np.ndarray, top_k: int) -> Iterator[dict[str, Tensor]]:
    """The columns of a cache, block by block, from a file with one answer of the server per line.

    Args:
        path: JSON lines; an answer may have several choices, one per block. Blocks are in order.
        tokens: `(blocks, L)`, what was asked about.
        top_k: how many classes to keep of each token.

    Raises:
        InputError: names the line, the block and the token that is not as it must be.
    """
    block = 0
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        for choice in _choices(f"{path}: line {number}", line):
            if block >= len(tokens):
                raise InputError(f"{path}: line {number}: expected {len(tokens)} blocks as the text has, found more")
            yield _columns(f"{path}: line {number}: block {block}", choice, tokens[block], top_k)
            block += 1
    if block < len(tokens):
        raise InputError(f"{path}: expected answers about {len(tokens)} blocks as the text has, found {block}")


def _choices(where: str, line: str) -> list[dict[str, Any]]:
    try:
        answer = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where}: expected JSON, found {line[:60]!r}") from error
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices) or not choices:
        problem = answer.get("message") or answer.get("error") if isinstance(answer, dict) else None
        raise InputError(f"{where}: expected an answer with choices, found {str(problem or line)[:80]!r}")
    return sorted(choices, key=lambda choice: int(choice.get("index", 0)))


def _columns(where: str, choice: dict[str, Any], tokens: np.ndarray, top_k: int) -> dict[str, Tensor]:
    ids = choice.get("prompt_token_ids")
    if ids is not None and list(ids) != tokens.tolist():
        raise InputError(f"{where}: prompt_token_ids: expected those of the text, found others; {_OTHER}")
    positions = _positions(where, choice, len(tokens))
    log_probs, indices, labels, rests = [], [], [], []
    for place, (token, found) in enumerate(zip(tokens[1:].tolist(), positions, strict=True), 1):
        if token not in found:
            raise InputError(
                f"{where}, token {place}: expected the log-probability of token {token}, found none; {_OTHER}"
            )
        # The label comes beside the k largest, or among them; of equal ones the lower class first.
        largest = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:top_k]
        if len(largest) < top_k:
            way_out = f"ask for prompt_logprobs: {top_k}, and start the server with --max-logprobs {top_k}"
            raise InputError(
                f"{where}, token {place}: expected {top_k} log-probabilities, found {len(largest)}; {way_out}"
            )
        indices.append([number for number, _ in largest])
        log_probs.append([value for _, value in largest])
        labels.append(found[token])
        given = math.fsum(math.exp(value) for number, value in largest if number != token) + math.exp(found[token])
        rests.append(math.log(1 - given) if given < 1 else -math.inf)
    columns = {"log_probs": log_probs, "label_log_probs": labels, "rest_log_probs": rests}
    return {name: torch.tensor([values], dtype=torch.float32) for name, values in columns.items()} | {
        "indices": torch.tensor([indices])
    }


_OTHER = "other text, another tokeniser or another packing"


def _positions(where: str, choice: dict[str, Any], length: int) -> list[Position]:
    """What was said about every token but the first."""
    said = choice.get("prompt_logprobs")
    if said is not None:
        found = [None if each is None else _by_id(where, each) for each in said]
    elif isinstance(choice.get("logprobs"), dict):
        found = [None if each is None else _by_name(where, each) for each in _echoed(where, choice["logprobs"])]
    else:
        raise InputError(f"{where}: expected prompt_logprobs, found none: set it in the request")
    found = found[:length]  # behind an echoed prompt comes what was generated
    if len(found) != length or found[0] is not None or any(each is None for each in found[1:]):
        empty = sum(each is None for each in found)
        raise InputError(
            f"{where}: expected {length} tokens, the first without log-probabilities, found {len(found)}, "
            f"{empty} without; {_OTHER}"
        )
    return [each for each in found if each is not None]


def _by_id(where: str, said: Any) -> Position:
    try:
        return {int(token): float(entry["logprob"]) for token, entry in said.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{where}: prompt_logprobs: expected token ids with logprob, found {str(said)[:80]}"
        ) from error


def _echoed(where: str, said: dict[str, Any]) -> list[dict[str, float] | None]:
    tokens, own, top = (said.get(name) for name in ("tokens", "token_logprobs", "top_logprobs"))
    if not (isinstance(tokens, list) and isinstance(own, list) and isinstance(top, list)):
        raise InputError(
            f"{where}: logprobs: expected tokens, token_logprobs and top_logprobs, found {', '.join(said)}"
        )
    rows = zip(tokens, own, top, strict=False)
    return [None if value is None else {**(largest or {}), token: value} for token, value, largest in rows]


def _by_name(where: str, said: dict[str, float]) -> Position:
    wrong = next((token for token in said if not token.startswith(TOKEN_ID)), None)
    if wrong is not None:
        raise InputError(
            f"{where}: logprobs: expected token ids, found the text {wrong!r}, which several tokens may have; set "
            "return_tokens_as_token_ids: true in the request, or ask for prompt_logprobs"
        )
    return {int(token.removeprefix(TOKEN_ID)): float(value) for token, value in said.items()}
