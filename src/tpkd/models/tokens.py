"""From texts to token ids: words hashed without any file, or a tokenizer of the transformers library."""

import hashlib
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from tpkd.errors import InputError, extra
from tpkd.models.encoder import loading

PADDINGS = ("max_length", "longest")
_PAD, _START, _END = 0, 1, 2


class Tokenizer(Protocol):
    """Texts in, token ids with their start and end marks out."""

    @property
    def pad_id(self) -> int:
        """The padding id."""

    @property
    def vocab_size(self) -> int:
        """All ids are smaller than this."""

    @property
    def fingerprint(self) -> str:
        """Recorded in a cache: two tokenizers with the same fingerprint give the same ids."""

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """The ids of each text, cut to `max_length`."""


@dataclass(frozen=True)
class HashedWords:
    """Lower-cased words and punctuation, each hashed to an id of the vocabulary; needs no file and knows every word.

    Example:
        >>> words = HashedWords(vocab_size=1000)
        >>> words.ids(["Pay my bill", "pay!"], max_length=16)
        [[1, 211, 527, 135, 2], [1, 211, 599, 2]]
    """

    vocab_size: int
    pad_id: int = field(default=_PAD, init=False)

    def __post_init__(self) -> None:
        """Refuse a vocabulary with no room for a word besides the special tokens."""
        if self.vocab_size <= _END + 1:
            raise InputError(f"vocab_size: expected at least {_END + 2}, found {self.vocab_size}")

    @property
    def fingerprint(self) -> str:
        """The name of the rule and the size of the vocabulary: all it depends on."""
        return f"words/{self.vocab_size}"

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """The ids of each text, cut to `max_length`."""
        return [[_START, *map(self._id, _words(text)[: max_length - 2]), _END] for text in texts]

    def _id(self, word: str) -> int:
        return _END + 1 + zlib.crc32(word.encode()) % (self.vocab_size - _END - 1)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text.lower())


class PretrainedTokenizer:
    """The tokenizer of a transformers folder or hub id."""

    def __init__(self, source: str) -> None:
        """Load it; a tokenizer without a `tokenizer.json` to hash is refused."""
        with extra("text"):
            from transformers import AutoTokenizer
        with loading(source):
            tokenizer: Any = AutoTokenizer.from_pretrained(
                source, trust_remote_code=False, local_files_only=Path(source).is_dir()
            )
        if not tokenizer.is_fast or tokenizer.pad_token_id is None:
            raise InputError(f"hf:{source}: expected a tokenizer with a tokenizer.json and a padding token")
        self._tokenizer = tokenizer
        self.pad_id: int = tokenizer.pad_token_id
        self.vocab_size: int = len(tokenizer)
        # Computed before the first call, because a call changes the truncation in the state.
        self.fingerprint: str = hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """The ids of each text, cut to `max_length`."""
        ids: list[list[int]] = self._tokenizer(list(texts), truncation=True, max_length=max_length)["input_ids"]
        return ids


@dataclass(frozen=True)
class TextEncoding:
    """Texts to the inputs of a text model, padded to `max_length` or to the longest text of the call.

    Example:
        >>> encode = TextEncoding(HashedWords(vocab_size=1000), max_length=5)
        >>> encode(["pay my bill", "pay"])["attention_mask"]
        tensor([[1, 1, 1, 1, 1],
                [1, 1, 1, 0, 0]])
    """

    tokenizer: Tokenizer
    max_length: int = 128
    padding: str = "max_length"

    def __post_init__(self) -> None:
        """Refuse a length with no room for a token between the special tokens, and an unknown padding."""
        if self.max_length < 3:
            raise InputError(f"max_length: expected at least 3, found {self.max_length}")
        if self.padding not in PADDINGS:
            raise InputError(f"padding: expected one of {', '.join(PADDINGS)}, found {self.padding!r}")

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """`input_ids` and `attention_mask`, both `(N, T)`."""
        rows = self.tokenizer.ids(texts, self.max_length)
        longest = max(map(len, rows), default=0)
        width = self.max_length if self.padding == "max_length" else longest
        input_ids = torch.full((len(rows), width), self.tokenizer.pad_id)
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        for row, tokens in enumerate(rows):
            input_ids[row, : len(tokens)] = torch.tensor(tokens)
        return {"input_ids": input_ids, "attention_mask": (torch.arange(width) < lengths.unsqueeze(-1)).long()}

    def to_dict(self) -> dict[str, Any]:
        """What a cache of this model's outputs must match."""
        return {"tokenizer": self.tokenizer.fingerprint, "max_length": self.max_length, "padding": self.padding}
