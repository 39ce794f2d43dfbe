"""Labels as users write them: the order of the classes, and which labels are likely mistakes."""

import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal

from tpkd.errors import InputError, did_you_mean

OFTEN = 5
"""Median class size from which a class with a single sample looks like a mistake."""

MAX_LABEL_LENGTH = 1000
"""Characters of a label; a longer one is a text in the wrong column."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


def sort_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """The classes of these labels: in numerical order if all are numbers, else in alphabetical order.

    Example:
        >>> sort_labels(["10", "2", "0", "10"]), sort_labels(["10", "2", "other"])
        (('0', '2', '10'), ('10', '2', 'other'))
    """
    names = sorted(set(labels))
    if all(_NUMBER.fullmatch(name) for name in names):
        names.sort(key=Decimal)
    return tuple(names)


def has_text(text: str) -> bool:
    """Whether there is any visible text, beyond white space and zero-width characters.

    Example:
        >>> has_text("hello"), has_text(" "), has_text("\\ufeff")
        (True, False, False)
    """
    return any(not character.isspace() and unicodedata.category(character) != "Cf" for character in text)


def label_problem(label: str) -> str | None:
    """What is wrong with the spelling of a label; None if nothing is.

    Example:
        >>> label_problem("greet"), label_problem(" greet")
        (None, "expected no white space around it, found ' greet'")
    """
    if len(label) > MAX_LABEL_LENGTH:
        return f"expected at most {MAX_LABEL_LENGTH} characters, found {len(label)}"
    if not has_text(label):
        return f"expected a name or a whole number, found {label!r}"
    if not has_text(label[0]) or not has_text(label[-1]):
        return f"expected no white space around it, found {label!r}"
    kinds = {unicodedata.category(character) for character in label}
    if "Cc" in kinds:
        return f"expected a name without control characters, found {label!r}"
    if "Cs" in kinds:
        return f"expected a name in whole characters, found {label!r}"
    return None


def text_problem(text: str) -> str | None:
    """What is wrong with a text; None if nothing is.

    Example:
        >>> text_problem("hello"), text_problem("he\\0llo")
        (None, 'expected a text, found a NUL in it: the file is damaged, or not in UTF-8')
    """
    if not has_text(text):
        return "expected a text, found none"
    if "\0" in text:
        return "expected a text, found a NUL in it: the file is damaged, or not in UTF-8"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "expected a text, found half of a character in it"
    return None


def first_twin(labels: Sequence[str]) -> tuple[int, int, str] | None:
    """The first label that is an earlier one in a different spelling: its index, the earlier index, and the difference.

    Numbers are compared by value. Names are the same if they differ only in case or in Unicode encoding; names of a
    single character are not compared, because the classes may be letters.

    Example:
        >>> first_twin(["greet", "leave", "Greet"])
        (2, 0, 'differ in upper and lower case alone')
        >>> first_twin(["1", "2", "01"]), first_twin(["a", "A"])
        ((2, 0, 'are the same number'), None)
    """
    numbers = all(_NUMBER.fullmatch(label) for label in set(labels))
    seen: dict[object, int] = {}
    for place, label in enumerate(labels):
        key: object = Decimal(label) if numbers else _folded(label)
        earlier = seen.setdefault(key, place)
        if labels[earlier] != label:
            if numbers:
                return place, earlier, "are the same number"
            same_case = unicodedata.normalize("NFKC", labels[earlier]) == unicodedata.normalize("NFKC", label)
            return (
                place,
                earlier,
                f"differ in {'how characters are encoded' if same_case else 'upper and lower case'} alone",
            )
    return None


def check_singletons(where: str, lines: Sequence[int], labels: Sequence[str]) -> None:
    """Refuse a class with a single sample where the median class has many: probably a stray comma or a typo.

    Args:
        where: the file, for the message.
        lines: the line of each label.
        labels: of the training part.

    Raises:
        InputError: names the line.

    Example:
        >>> check_singletons("a.csv", range(2, 15), ["greet", "leave"] * 6 + ["leafe"])
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: a.csv: line 14: label: 'leafe' occurs once and the median label 6 times; did you mean \
leave? Correct the row, or accept such classes with data.allow_singletons: true
    """
    counts = Counter(labels)
    median = statistics.median(counts.values())
    single = next((place for place, label in enumerate(labels) if counts[label] == 1), None)
    if single is None or median < OFTEN:
        return
    label = labels[single]
    hint = did_you_mean(label, [name for name in counts if name != label]) or "."
    raise InputError(
        f"{where}: line {lines[single]}: label: {label!r} occurs once and the median label {median:g} times{hint} "
        "Correct the row, or accept such classes with data.allow_singletons: true"
    )


def _folded(label: str) -> str:
    return unicodedata.normalize("NFKC", label).casefold() if len(label) > 1 else label
