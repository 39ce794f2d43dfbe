"""A language model from a path, for the commands that run one."""

from collections.abc import Callable
from pathlib import Path

import torch

from tpkd.diagnosis.tokens.record import TokenDiagnosis
from tpkd.diagnosis.tokens.run import diagnose_tokens
from tpkd.models.language import load_language_model, load_tokenizer, vocabulary_size
from tpkd.teacher.cache.tokens import open_token_cache
from tpkd.teacher.tokenizers import tokenizer_sha256


def diagnose_language_model(
    student: Path, cache: Path, blocks: int | None, advance: Callable[[int, int], None]
) -> TokenDiagnosis:
    """Load a student and its tokeniser, refuse a cache of another tokeniser or with more classes, and diagnose.

    Args:
        student: a transformers folder, or a GGUF file.
        cache: the directory of a token cache.
        blocks: how many to look at.
        advance: told how far it is.

    Raises:
        InputError: what does not fit, by name.
    """
    folder, gguf = (student.parent, student.name) if student.suffix.lower() == ".gguf" else (student, None)
    tokenizer = load_tokenizer(str(folder), gguf)
    num_classes = vocabulary_size(str(folder), gguf)
    teacher = open_token_cache(cache, tokenizer=tokenizer_sha256(tokenizer), num_classes=num_classes)
    model = load_language_model(str(folder), gguf)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)

    def logits(tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model(input_ids=tokens[:, :-1].to(device), use_cache=False).logits
        return found

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    return diagnose_tokens(str(student), logits, teacher, decode, blocks=blocks, advance=advance)
