"""A cache of a language model: a row is a block of tokens, keyed by (document, block), with an answer for every token.

A block of L tokens has L - 1 predictions. Entry t is what the teacher says about the token at place t + 1, and that
token is the label; so nothing has to be shifted twice.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int, Int64
from torch import Tensor
from torch.utils.data import Dataset

from tpkd.errors import InputError, extra
from tpkd.geometry.top_k import TopK, check_top_k
from tpkd.teacher.cache.build import BuildProgress, build_cache
from tpkd.teacher.cache.columns import TOKENS
from tpkd.teacher.cache.keys import Keys
from tpkd.teacher.cache.read import Ids, TeacherCache, open_cache
from tpkd.teacher.cache.recipe import IMPORTED, CacheRecipe
from tpkd.teacher.cache.rows import CacheRows, hash_blocks

if TYPE_CHECKING:
    import datasets

Reader = Callable[[int, int], Mapping[str, Tensor]]
"""From the numbers of the first block and of the one after the last to the fields of a `TopK`."""

LABEL_TOLERANCE = 1e-2
"""How far two log-probabilities of one token may be apart, relative where above one: a rounding to half precision."""

TOTAL_TOLERANCE = 1e-4
"""How far all that is said of a token may be from a total probability of 1 in single precision."""

WRITTEN_AT_ONCE = 16
"""Blocks that are checked and stored together where a cache is written from arrays."""


class TokenCache:
    """An open cache of a language model: its blocks of text, and what the teacher says about every token of them.

    Made by `open_token_cache`. `cache` is the `TeacherCache` below it.
    """

    def __init__(self, cache: TeacherCache) -> None:
        """Refuse a cache of samples."""
        if cache.recipe.positions is None:
            raise InputError(f"{cache.directory}: expected a cache of text, found one of samples")
        if cache.top_k is None:
            raise InputError(f"{cache.directory}: expected a cache of the largest classes, found one of all logits")
        self.cache, self.recipe, self.directory = cache, cache.recipe, cache.directory

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self.cache)

    @property
    def length(self) -> int:
        """Tokens of a block, L."""
        assert self.recipe.positions is not None
        return self.recipe.positions + 1

    @property
    def top_k(self) -> int:
        """Classes that are kept of each prediction."""
        assert self.recipe.top_k is not None
        return self.recipe.top_k

    @property
    def num_classes(self) -> int:
        """Size of the vocabulary over which the teacher's probabilities sum to one."""
        return self.recipe.num_classes

    @property
    def tokenizer_sha256(self) -> str | None:
        """Of the tokeniser that made the tokens; None where an import did not say."""
        found = self.recipe.preprocessing.get("tokenizer")
        return None if found is None else str(found)

    @property
    def documents(self) -> Keys:
        """The document of each block, in order: the one in which it begins."""
        return self.cache.sample_ids

    @property
    def blocks(self) -> Keys:
        """The number of each block among those that begin in its document, in order."""
        return self.cache.view_ids

    def tokens(self, documents: Ids, blocks: Ids) -> Int64[Tensor, "batch length"]:
        """The tokens of some blocks, the first of each included."""
        return self.cache.read_tensor(TOKENS, documents, blocks)

    def read(self, documents: Ids, blocks: Ids, input_ids: Int[Tensor, "batch length"] | None = None) -> TopK:
        """What the teacher says about every token but the first of some blocks.

        Args:
            documents: `(batch,)`.
            blocks: `(batch,)`.
            input_ids: the tokens that the student will see; other tokens than those the teacher saw are refused.

        Returns:
            `log_probs` and `indices` `(batch, L - 1, k)` in float32 and int64, largest first, `label_log_probs` and
            `rest_log_probs` `(batch, L - 1)`; index -1 is an empty place.

        Raises:
            InputError: a block is not in the cache, or its tokens are others; document, block and token are named.
        """
        if input_ids is not None:
            self._check_tokens(documents, blocks, input_ids)
        found = self.cache.read(documents, blocks)
        assert isinstance(found, TopK)
        return found

    def dataset(self) -> "TokenBlocks":
        """All blocks as samples of a `torch` data set; the text itself is not needed any more."""
        return TokenBlocks(self)

    def to_datasets(self) -> "datasets.Dataset":
        """All blocks as a data set of Hugging Face's `datasets`, which TRL takes: the columns of `TokenBlocks`.

        All tokens are read at once and held in memory, eight bytes per token.
        """
        with extra("data"):
            import datasets
        tokens = self.tokens(self.documents, self.blocks).int().numpy()
        numbers = datasets.List(datasets.Value("int32"))
        key = datasets.Value("int64")
        return datasets.Dataset.from_dict(
            {"input_ids": tokens, "labels": tokens, "sample_id": self.documents, "view_id": self.blocks},
            datasets.Features({"input_ids": numbers, "labels": numbers, "sample_id": key, "view_id": key}),
        )

    def _check_tokens(self, documents: Ids, blocks: Ids, input_ids: Tensor) -> None:
        expected, found = self.tokens(documents, blocks), input_ids.cpu()
        if found.shape != expected.shape:
            raise InputError(
                f"{self.directory}: expected blocks of {self.length} tokens, as the teacher saw them, found input_ids "
                f"of shape {tuple(found.shape)} for {len(expected)} blocks: use the packing of the cache"
            )
        differs = (expected != found).nonzero()
        if len(differs):
            row, place = differs[0].tolist()
            key = f"document {int(documents[row])}, block {int(blocks[row])}, token {place}"
            raise InputError(
                f"{self.directory}: {key}: expected {int(expected[row, place])}, which the teacher saw, found "
                f"{int(found[row, place])}: other text, another tokeniser or another packing"
            )


class TokenBlocks(Dataset[dict[str, Any]]):
    """The blocks of a cache as samples for a language model: `input_ids`, `labels`, and the keys of the cache.

    Labels are the tokens themselves, as causal language models of transformers want them; they shift them. A trainer
    reads the cache by `sample_id` (the document) and `view_id` (the block).
    """

    def __init__(self, cache: TokenCache) -> None:
        """Nothing is read yet."""
        self._cache = cache

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self._cache)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One block."""
        document, block = int(self._cache.documents[index]), int(self._cache.blocks[index])
        tokens = self._cache.tokens([document], [block])[0]
        return {"input_ids": tokens, "labels": tokens.clone(), "sample_id": document, "view_id": block}


def open_token_cache(
    directory: str | Path,
    *,
    tokenizer: str | None = None,
    num_classes: int | None = None,
    expected: CacheRecipe | None = None,
    check: bool = True,
) -> TokenCache:
    """Open a cache of a language model; what does not match, is not finished or is damaged is refused by name.

    Args:
        directory: where it was built, imported or written.
        tokenizer: the SHA-256 of the student's tokeniser, see `tokenizer_sha256`; another one is refused.
        num_classes: size of the student's vocabulary; a cache with more classes is refused.
        expected: what the caller would have computed; every field that differs is named.
        check: hash every file and look at every row, as in `open_cache`.

    Example:
        >>> open_token_cache("/no/such/cache")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: /no/such/cache: expected a teacher cache, found no manifest.json
    """
    cache = TokenCache(open_cache(directory, expected=expected, check=check))
    found = cache.tokenizer_sha256
    if tokenizer is not None and found is not None and found != tokenizer:
        raise InputError(
            f"{directory}: tokenizer: expected that of the student, {tokenizer[:12]}…, found {found[:12]}…: a token "
            "number means another text to each of them; build the cache with the tokeniser of the student"
        )
    if num_classes is not None and cache.num_classes > num_classes:
        raise InputError(
            f"{directory}: expected at most the {num_classes} classes of the student, found {cache.num_classes}"
        )
    return cache


def write_token_cache(
    directory: str | Path,
    tokens: Int64[np.ndarray, "blocks length"],
    answers: Mapping[str, np.ndarray] | Reader,
    *,
    num_classes: int,
    top_k: int,
    documents: Keys | None = None,
    blocks: Keys | None = None,
    source: str = "arrays",
    dataset: str | None = None,
    described: str | None = None,
    tokenizer: str | None = None,
    dtype: str = "float16",
    packing: Mapping[str, Any] | None = None,
    on_progress: Callable[[BuildProgress], None] | None = None,
) -> None:
    """Write a cache from what a teacher said elsewhere; an interrupted writing continues.

    Args:
        directory: new, empty, or the same cache that is not finished.
        tokens: the text as the teacher saw it.
        answers: `log_probs` and `indices` `(blocks, L - 1, k)`, `label_log_probs` and, unless k is all classes,
            `rest_log_probs` `(blocks, L - 1)`; or a function that gives those of the blocks start..stop-1 as tensors.
        num_classes: size of the vocabulary.
        top_k: k.
        documents: the document of each block; by default block i is document i.
        blocks: the number of each block in its document; by default 0.
        source: what identifies the answers, such as the SHA-256 of their file; the cache is bound to it.
        dataset: what identifies the text, by default the SHA-256 of the tokens.
        described: what is shown as the origin of the answers.
        tokenizer: the SHA-256 of the tokeniser that made the tokens, where it is known.
        dtype: in which log-probabilities are kept.
        packing: how the tokens were cut into blocks, as plain data; the cache is bound to it.
        on_progress: told how far the writing is.

    Raises:
        InputError: an answer does not fit, or the directory holds something else.

    Example:
        >>> import tempfile
        >>> tokens = np.array([[0, 2, 1]])
        >>> whole = np.log([[[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]]])
        >>> answers = {"log_probs": whole[..., :2], "indices": np.array([[[0, 1], [0, 1]]])}
        >>> answers |= {"label_log_probs": whole[0, [0, 1], [2, 1]][None], "rest_log_probs": np.log([[1e-30, 0.2]])}
        >>> directory = tempfile.mkdtemp()
        >>> write_token_cache(directory, tokens, answers, num_classes=3, top_k=2)
        >>> open_token_cache(directory).read([0], [0]).label_log_probs.exp()
        tensor([[0.1000, 0.3000]])
    """
    recipe = CacheRecipe(
        model_fingerprint=f"{IMPORTED}{source}",
        dataset_fingerprint=dataset or hash_blocks([tokens.reshape(-1)], []),
        preprocessing={"tokenizer": tokenizer, "packing": None if packing is None else dict(packing)},
        class_map=None,
        num_classes=num_classes,
        dtype=dtype,
        versions={},  # nothing was computed with them
        top_k=top_k,
        positions=tokens.shape[1] - 1,
    )
    read = _checked(answers if callable(answers) else _of_arrays(answers), recipe, tokens)
    documents = np.arange(len(tokens)) if documents is None else documents
    rows = CacheRows(documents, np.zeros_like(documents) if blocks is None else blocks, read, tokens=tokens)
    build_cache(
        directory, rows, dict, recipe, block_rows=WRITTEN_AT_ONCE, model_source=described, on_progress=on_progress
    )


def _checked(read: Reader, recipe: CacheRecipe, tokens: np.ndarray) -> Reader:
    """The same answers, every one looked at before it is stored: a class out of range would become another one."""

    def checked(start: int, stop: int) -> Mapping[str, Tensor]:
        columns, expected = dict(read(start, stop)), recipe.columns
        for name in (field.name for field in fields(TopK)):
            shape = expected[name].shape(stop - start)
            if tuple(columns[name].shape) != shape:
                found = tuple(columns[name].shape)
                raise InputError(
                    f"answers: {name}: expected shape {shape} for blocks {start} to {stop - 1}, found {found}"
                )
        top_k = TopK(**columns)
        try:
            check_top_k(top_k, recipe.num_classes, name=f"answers: blocks {start} to {stop - 1}")
        except ValueError as error:
            raise InputError(str(error)) from error
        labels = torch.from_numpy(tokens[start:stop, 1:])
        _check_labels(top_k, labels, start)
        _check_totals(top_k, labels, start, recipe.num_classes)
        return columns

    return checked


def _check_labels(top_k: TopK, labels: Tensor, start: int) -> None:
    """Where the right token is among the kept, it has one log-probability: answers about another text have two."""
    assert top_k.label_log_probs is not None
    is_label = top_k.indices == labels.unsqueeze(-1)
    among = top_k.log_probs.double().masked_fill(~is_label, -torch.inf).amax(-1)
    said = top_k.label_log_probs.double()
    wrong = is_label.any(-1) & ~torch.isclose(said, among, rtol=LABEL_TOLERANCE, atol=LABEL_TOLERANCE)
    # A token that is not kept is not above one that is.
    least = top_k.log_probs.double().masked_fill(top_k.indices < 0, torch.inf).amin(-1)
    wrong |= ~is_label.any(-1) & (said > least + LABEL_TOLERANCE * (1 + least.abs()))
    if wrong.any():
        row, place = wrong.nonzero()[0].tolist()
        raise InputError(
            f"answers: block {start + row}, token {place + 1}: expected for the right token {int(labels[row, place])} "
            f"the log-probability that log_probs has, or less than all of them, found {said[row, place]:.4g}: answers "
            "about other text, another tokeniser or another packing"
        )


def _check_totals(top_k: TopK, labels: Tensor, start: int, num_classes: int) -> None:
    """Kept classes, label and rest have all the probability: logits seldom do."""
    assert top_k.label_log_probs is not None
    assert top_k.rest_log_probs is not None
    is_other = (top_k.indices >= 0) & (top_k.indices != labels.unsqueeze(-1))
    others = top_k.log_probs.double().masked_fill(~is_other, -torch.inf)
    given = torch.cat([others, top_k.label_log_probs.double().unsqueeze(-1)], dim=-1)
    # Where no class is left out, whatever is given as their total counts as nothing.
    rest = top_k.rest_log_probs.double().exp().masked_fill(is_other.sum(-1) + 1 >= num_classes, 0.0)
    total = given.exp().sum(-1) + rest
    rounding = max(TOTAL_TOLERANCE, 4 * torch.finfo(top_k.log_probs.dtype).eps)
    wrong = (total - 1).abs() > rounding * (1 + (given.exp() * given.clamp(min=-1e4).abs()).sum(-1))
    if wrong.any():
        row, place = wrong.nonzero()[0].tolist()
        raise InputError(
            f"answers: block {start + row}, token {place + 1}: expected log_probs, label_log_probs and rest_log_probs "
            f"with a total probability of 1, found {total[row, place]:.6g}: are these logits, or log-probabilities at "
            "another temperature?"
        )


def _of_arrays(arrays: Mapping[str, np.ndarray]) -> Reader:
    names = [field.name for field in fields(TopK)]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InputError(f"answers: expected {', '.join(names)}, found no {missing[0]}")
    return lambda start, stop: {name: torch.from_numpy(np.asarray(arrays[name][start:stop])) for name in names}
