"""The language model that learns from a cache: its tokeniser and vocabulary must be those of the cache."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from tpkd.config.loading import ConfigError, expand_data, keyed
from tpkd.config.tokens import TokensConfig
from tpkd.models.language import keep_layers, language_source, load_language_model, load_tokenizer
from tpkd.teacher.cache.tokens import TokenCache
from tpkd.teacher.tokenizers import tokenizer_sha256


def load_student(config: TokensConfig) -> nn.Module:
    """The student at its start."""
    section, teacher = config.student, config.teacher
    model, gguf = (teacher.model, teacher.gguf) if section.model is None else (section.model, section.gguf)
    with keyed("student"):
        student = load_language_model(expand_data(language_source(model)), gguf)
        return keep_layers(student, section.layers) if section.layers else student


def load_student_tokenizer(config: TokensConfig, expected: Any) -> Any:
    """The tokeniser of the student, which the trained student is saved with.

    Args:
        config: a student without `model` is made of the teacher's layers and has the teacher's tokeniser.
        expected: the tokeniser that made the tokens of the cache.

    Raises:
        ConfigError: the student has another tokeniser; the first token that differs is named.
    """
    section = config.student
    if section.model is None:
        return expected
    with keyed("student"):
        tokenizer = load_tokenizer(expand_data(language_source(section.model)), section.gguf)
    ours, found = tokenizer_sha256(expected), tokenizer_sha256(tokenizer)
    if ours != found:
        raise ConfigError(
            f"student.model: expected the tokeniser of the cache, {ours[:12]}…, found {found[:12]}…: "
            f"{explain_difference(expected.get_vocab(), tokenizer.get_vocab())}"
        )
    return tokenizer


def explain_difference(cache: Mapping[str, int], student: Mapping[str, int]) -> str:
    """What two different tokenisers differ in, and what to do.

    Args:
        cache: token -> number of the tokeniser that made the cache.
        student: the same of the student's tokeniser.

    Example:
        >>> explain_difference({"a": 0, "b": 1}, {"a": 0, "c": 1})
        "token 'b' is number 1 in the cache and unknown in the student; choose a student with the teacher's tokeniser"
    """
    numbers = {**student, **cache}
    differ = {token for token, _ in cache.items() ^ student.items()}
    if not differ:
        return (
            "every token has the same number in both, but merges, normalisation or other rules differ, as they may "
            "between a GGUF file and a folder of the hub; if both cut text alike, save the teacher's tokeniser in the "
            "student's folder"
        )
    token = min(differ, key=lambda token: (numbers[token], token))
    said = [f"number {known[token]}" if token in known else "unknown" for known in (cache, student)]
    return (
        f"token {token!r} is {said[0]} in the cache and {said[1]} in the student; choose a student with the teacher's "
        "tokeniser"
    )


def check_vocabulary(config: TokensConfig, student: nn.Module, cache: TokenCache) -> None:
    """Refuse a student that has fewer logits than the cache has classes; more are padding, and left out of the loss.

    Raises:
        ConfigError: with both sizes.
    """
    configuration: Any = student.config
    found = int(configuration.get_text_config().vocab_size)
    if found < cache.num_classes:
        key = "teacher.model" if config.student.model is None else "student.model"
        raise ConfigError(
            f"{key}: expected at least {cache.num_classes} logits, the classes of {cache.directory}, found {found}; "
            f"resize_token_embeddings({cache.num_classes}) of transformers pads the student"
        )
