"""Which tokeniser made the tokens: two with the same fingerprint give the same tokens for every text."""

import hashlib
import json
from typing import Any

from tpkd.errors import InputError


def tokenizer_sha256(tokenizer: Any) -> str:
    """The SHA-256 of a fast tokeniser of transformers: vocabulary, merges, normalisation and special tokens.

    Padding and truncation, which a call may change, are not part of it; nor is the folder that it came from.

    Raises:
        InputError: the tokeniser has no `tokenizer.json`, so it cannot be told apart from others.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> class Fast:
        ...     def __init__(self, vocabulary):
        ...         self.backend_tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
        >>> tokenizer_sha256(Fast({"a": 0, "b": 1})) == tokenizer_sha256(Fast({"a": 0, "c": 1}))
        False
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InputError(f"tokenizer: expected one with a tokenizer.json, found {type(tokenizer).__name__}")
    state = json.loads(backend.to_str())
    state.pop("padding", None)
    state.pop("truncation", None)
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
