"""From what a language model said elsewhere to its cache: arrays of a file, or the answers of a vLLM server."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tpkd.arrays import array_names, open_array
from tpkd.config.loading import ConfigError, expand_data, keyed
from tpkd.config.tokens import TokensConfig
from tpkd.errors import InputError
from tpkd.files import sha256
from tpkd.importing.stream import RowStream
from tpkd.importing.vllm import read_answers
from tpkd.models.language import language_source, vocabulary_size
from tpkd.teacher.cache.build import BuildProgress
from tpkd.teacher.cache.columns import TOKENS, TOP_K_COLUMNS
from tpkd.teacher.cache.tokens import write_token_cache
from tpkd.tokens.cache import load_text

BLOCKS_AT_ONCE = 16
ANSWERS = (".jsonl", ".ndjson")


def import_tokens(
    config: TokensConfig,
    path: Path,
    *,
    on_progress: Callable[[BuildProgress], None] | None = None,
    on_note: Callable[[str], None] = lambda sentence: None,
) -> Path:
    """Write the cache that `teacher.cache` names from a file; no network is run, only its tokeniser is needed.

    The cache is bound to text, tokeniser and packing as a built one is, and to the bytes of the file. Every answer is
    compared with the text: the right token of each place must be among what was answered, with one log-probability.

    Args:
        config: text, packing, and the teacher's tokeniser and vocabulary.
        path: `.jsonl` with the answers of a vLLM server, in the order of the blocks; or `.npz` or `.safetensors` with
            `log_probs` and `indices` `(blocks, L - 1, k)`, `label_log_probs` and optionally `rest_log_probs`
            `(blocks, L - 1)`, and optionally `tokens` `(blocks, L)`.
        on_progress: told how far the import is.
        on_note: told what was found in the text.

    Raises:
        InputError: names the block and the token that is not as it must be.
    """
    if config.teacher.top_p is not None:
        raise ConfigError("teacher.top_p: expected none for an import: the file says what was kept")
    text, teacher = load_text(config), config.teacher
    tokens = text.blocks.tokens
    with keyed("teacher"):
        num_classes = vocabulary_size(expand_data(language_source(teacher.model)), teacher.gguf)
    on_note(f"{text.num_documents:,} documents, {len(tokens):,} blocks, {tokens.size - len(tokens):,} predictions.")

    def parts() -> Iterator[dict[str, Tensor]]:
        if path.suffix.lower() in ANSWERS:
            return read_answers(path, tokens, teacher.top_k)
        return _read_arrays(path, tokens, teacher.top_k)

    digest, directory = sha256(path), Path(expand_data(teacher.cache))
    write_token_cache(
        directory,
        tokens,
        RowStream(parts).read,
        num_classes=num_classes,
        top_k=teacher.top_k,
        documents=text.blocks.documents,
        blocks=text.blocks.numbers,
        source=digest,
        dataset=text.documents_sha256,
        described=f"{path.name} SHA-256 {digest}",
        tokenizer=text.preprocessing["tokenizer"],
        dtype=teacher.cache_dtype,
        packing=text.preprocessing["packing"],
        on_progress=on_progress,
    )
    return directory


def _read_arrays(path: Path, tokens: np.ndarray, top_k: int) -> Iterator[dict[str, Tensor]]:
    names = array_names(path)
    needed = [name for name in TOP_K_COLUMNS if name != "rest_log_probs"]
    missing = [name for name in needed if name not in names]
    if missing:
        raise InputError(f"{path}: expected {', '.join(needed)}, found no {missing[0]}")
    kept = [name for name in (*TOP_K_COLUMNS, TOKENS) if name in names]
    arrays = {name: open_array(path, key=name) for name in kept}
    positions = (len(tokens), tokens.shape[1] - 1)
    shapes: dict[str, tuple[int, ...]] = {"log_probs": (*positions, top_k), "indices": (*positions, top_k)}
    for name, array in arrays.items():
        expected = shapes.get(name, tokens.shape if name == TOKENS else positions)
        if array.shape != expected:
            raise InputError(
                f"{path}: {name}: expected shape {expected}, as text and teacher.top_k say, found {array.shape}"
            )
    start = 0
    for blocks in zip(*(array.blocks(BLOCKS_AT_ONCE) for array in arrays.values()), strict=True):
        columns = dict(zip(arrays, blocks, strict=True))
        if TOKENS in columns:
            _check_tokens(path, columns.pop(TOKENS), tokens, start)
        columns["indices"] = columns["indices"].long()
        if "rest_log_probs" not in columns:
            labels = torch.from_numpy(tokens[start : start + len(columns["indices"]), 1:])
            columns["rest_log_probs"] = rest_of(columns, labels)
        start += len(columns["indices"])
        yield columns


def _check_tokens(path: Path, found: Tensor, tokens: np.ndarray, start: int) -> None:
    differs = (found.long() != torch.from_numpy(tokens[start : start + len(found)])).nonzero()
    if len(differs):
        row, place = differs[0].tolist()
        raise InputError(
            f"{path}: tokens: block {start + row}, token {place}: expected {tokens[start + row, place]}, found "
            f"{int(found[row, place])}: other text, another tokeniser or another packing"
        )


def rest_of(columns: Mapping[str, Tensor], labels: Tensor) -> Tensor:
    """One minus what is given, as a log-probability; -inf where rounding leaves nothing.

    Example:
        >>> given = {"log_probs": torch.tensor([[0.5, 0.2]]).log(), "indices": torch.tensor([[4, 7]])}
        >>> rest_of(given | {"label_log_probs": torch.tensor([0.2]).log()}, torch.tensor([7])).exp()
        tensor([0.3000])
    """
    others = columns["log_probs"].double().exp().masked_fill(columns["indices"] == labels.unsqueeze(-1), 0.0).sum(-1)
    return (1 - others - columns["label_log_probs"].double().exp()).clamp(min=0).log().float()
