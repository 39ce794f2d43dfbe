"""Whether a teacher understands the inputs of a student: the same tokens by the same numbers, images normalised alike.

A number means whatever its network's vocabulary says. With another vocabulary it is an `IndexError` at best; else the
teacher answers about another text and nothing looks wrong.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from tpkd.errors import InputError

TOKENS = "input_ids"
_OPT_OUT = "check_inputs=False if you made sure that the teacher understands the student's inputs"


def check_tokens(
    student: nn.Module,
    teacher: nn.Module,
    student_processor: Any,
    teacher_processor: Any,
    *,
    true_vocab_size: int | None = None,
) -> None:
    """Refuse a teacher that reads the student's tokens by another vocabulary, as far as it is known.

    Where both tokenizers are known, every token of the student's must have the same number in the teacher's, and a
    row in its table of embeddings. Otherwise both configurations must have the same `pad_token_id` and, where
    `true_vocab_size` does not say what is padding, the same `vocab_size`.

    Raises:
        InputError: the first difference, and what to do about it.

    Example:
        >>> from types import SimpleNamespace
        >>> student, teacher = (SimpleNamespace(config=SimpleNamespace(vocab_size=size)) for size in (30522, 28996))
        >>> check_tokens(student, teacher, None, None)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: teacher.config.vocab_size: expected the student's 30522, found 28996: ...
    """
    own, theirs = (getattr(model, "config", None) for model in (student, teacher))
    ours, other = _vocabulary(student_processor), _vocabulary(teacher_processor)
    rows = getattr(theirs, "vocab_size", None)
    if ours is not None and other is not None:
        _compare_tokens(ours, other)
        needed = max(ours.values(), default=-1) + 1
        if rows is not None and rows < needed:
            raise InputError(
                f"teacher.config.vocab_size: expected a row for each of the {needed} tokens of processing_class, "
                f"found {rows}"
            )
        return
    for name in ("pad_token_id",) if true_vocab_size is not None else ("vocab_size", "pad_token_id"):
        expected, found = getattr(own, name, None), getattr(theirs, name, None)
        if expected is not None and found is not None and expected != found:
            raise InputError(
                f"teacher.config.{name}: expected the student's {expected}, found {found}: the teacher reads the "
                "student's tokens, and one number means two things; choose a teacher with the student's tokenizer, "
                "tokenize for it in columns that only its forward names, pass both tokenizers (processing_class=, "
                f"teacher_processing_class=) to have them compared token by token, or {_OPT_OUT}"
            )


def compare_output_tokens(student_processor: Any, teacher_processor: Any) -> int | None:
    """How many classes are tokens, where both tokenizers are known: the teacher's answers are about tokens too.

    Raises:
        InputError: a token of one has another number in the other, or none.

    Example:
        >>> from types import SimpleNamespace
        >>> ours, theirs = (SimpleNamespace(get_vocab=lambda c=c: {"a": 0, c: 1}) for c in "bc")
        >>> compare_output_tokens(ours, ours)
        2
        >>> compare_output_tokens(ours, theirs)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: teacher_processing_class: expected token 'b' to be 1 as in processing_class, found ...
    """
    ours, theirs = _vocabulary(student_processor), _vocabulary(teacher_processor)
    if ours is None or theirs is None:
        return None
    _compare_tokens(ours, theirs)
    size = max(ours.values(), default=-1) + 1
    # Behind the last token of the student's its own may follow: the student cannot say them, and they are taken out.
    foreign = {token: number for token, number in theirs.items() if number < size and token not in ours}
    if foreign:
        token = min(foreign, key=foreign.__getitem__)
        raise InputError(
            f"teacher_processing_class: expected the tokens of processing_class, found {token!r} as number "
            f"{foreign[token]}, which is no token there: the teacher's probabilities are about tokens; choose a "
            "teacher with the student's tokenizer"
        )
    return size


def check_images(student_processor: Any, teacher_processor: Any) -> None:
    """Refuse a teacher whose images are normalised otherwise, where both image processors are known.

    Example:
        >>> from types import SimpleNamespace
        >>> check_images(SimpleNamespace(image_mean=[0.5]), SimpleNamespace(image_mean=[0.4]))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: teacher_processing_class.image_mean: expected the student's [0.5], found [0.4]: ...
    """
    ours, theirs = (getattr(each, "image_processor", each) for each in (student_processor, teacher_processor))
    for name in ("image_mean", "image_std"):
        expected, found = getattr(ours, name, None), getattr(theirs, name, None)
        if expected is not None and found is not None and list(expected) != list(found):
            raise InputError(
                f"teacher_processing_class.{name}: expected the student's {list(expected)}, found {list(found)}: the "
                "teacher sees the student's images; normalise them anew in its forward, prepare a column of its own, "
                f"or {_OPT_OUT}"
            )


def check_true_size(true_vocab_size: int | None, processor: Any, num_classes: int | None) -> None:
    """Refuse a `true_vocab_size` that leaves out tokens: the teacher would say nothing of them, in silence.

    Raises:
        InputError: the tokenizer, where it is known, has a token with that number or a higher one.

    Example:
        >>> from types import SimpleNamespace
        >>> tokenizer = SimpleNamespace(get_vocab=lambda: {"a": 0, "b": 1, "<|im_end|>": 2})
        >>> check_true_size(2, tokenizer, 4)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: true_vocab_size: expected at least 3, found 2: processing_class has a token 2...
    """
    vocabulary = _vocabulary(processor)
    if true_vocab_size is None or not vocabulary:
        return
    needed = max(vocabulary.values()) + 1
    needed = needed if num_classes is None else min(needed, num_classes)  # a table may have no row for the last ones
    if true_vocab_size < needed:
        raise InputError(
            f"true_vocab_size: expected at least {needed}, found {true_vocab_size}: processing_class has a token "
            f"{needed - 1}; len(tokenizer) counts added tokens too, tokenizer.vocab_size does not"
        )


def check_length(input_ids: Any, positions: int | None, position_ids: Any = None) -> None:
    """Refuse texts with more tokens than the teacher has positions; packed ones count from 0 in every document.

    Example:
        >>> import torch
        >>> check_length(torch.zeros(2, 600), 512)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: input_ids: expected at most the 512 positions of the teacher ..., found 600: ...
    """
    length = input_ids.shape[-1] if isinstance(input_ids, Tensor) and input_ids.ndim else 0
    if positions is not None and length > positions and isinstance(position_ids, Tensor):
        length = int(position_ids.max()) + 1
    if positions is not None and length > positions:
        raise InputError(
            f"{TOKENS}: expected at most the {positions} positions of the teacher (config.max_position_embeddings), "
            f"found {length}: truncate with max_length={positions}, choose a teacher of longer texts, or "
            "check_inputs=False where its positions have no end"
        )


def positions_of(model: nn.Module) -> int | None:
    """How many tokens a network can read, where its configuration says so.

    Networks of RoBERTa's kind number positions after the padding token, so that some rows of their table are never
    used.

    Example:
        >>> from types import SimpleNamespace
        >>> model = nn.ModuleDict({"position_embeddings": nn.Embedding(514, 8, padding_idx=1)})
        >>> model.config = SimpleNamespace(max_position_embeddings=514)
        >>> positions_of(model)
        512
    """
    places = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if not isinstance(places, int) or places < 1:
        return None
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and "position" in name.rpartition(".")[2]:
            return places if module.padding_idx is None else places - module.padding_idx - 1
    return places


def _vocabulary(processor: Any) -> Mapping[str, int] | None:
    """Token -> number of a tokenizer, or of the one that a processor holds; None where there is none."""
    get_vocab = getattr(getattr(processor, "tokenizer", processor), "get_vocab", None)
    return None if get_vocab is None else dict(get_vocab())


def _compare_tokens(ours: Mapping[str, int], theirs: Mapping[str, int]) -> None:
    # Tokens that only the teacher knows never come.
    different = [token for token, number in ours.items() if theirs.get(token) != number]
    if different:
        token = min(different, key=ours.__getitem__)
        more = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
        raise InputError(
            f"teacher_processing_class: expected token {token!r} to be {ours[token]} as in processing_class, found "
            f"{theirs.get(token, 'none')}{more}: the teacher reads the student's tokens; choose a teacher with the "
            f"student's tokenizer, tokenize for it in columns that only its forward names, or {_OPT_OUT}"
        )
