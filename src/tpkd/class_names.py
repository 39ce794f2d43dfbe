"""Class names: read from wherever they are recorded, and compared wherever two lists must agree.

A column of logits has no name. Two networks with the same classes in a different order can be combined without an
error, and every resulting number is finite and wrong. So names are stored with weights, caches and results, and
`check_class_names` is called wherever a teacher, a student and a data set are combined.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpkd.errors import InputError
from tpkd.files import open_safetensors, read_lines, read_text, reading

METADATA_KEY = "class_names"
"""Metadata key of the class names in a safetensors file: a JSON list."""
SEVERAL = -1
"""The position of a name that several classes have."""


def check_class_names(
    found: Sequence[str] | None, expected: Sequence[str] | None, *, found_in: str, expected_in: str, way_out: str = ""
) -> None:
    """Refuse different class names, or the same names in a different order, if both sides have names.

    Case is ignored. Accepted without a comparison: a side without names, `LABEL_0`,
    `LABEL_1`, …, which transformers gives to classes without names, and a side that only numbers its classes
    (`0`, `1`, …) if the other names them. If both are numbers, they are compared.

    Args:
        found: the names to check, in the order of the logits.
        expected: what they must be.
        found_in: the source of `found`, as shown in the message: a file, or a key of the configuration.
        expected_in: the source of `expected`.
        way_out: what the user can do about it, added to the message.

    Raises:
        InputError: the first class that differs, with both names.

    Example:
        >>> check_class_names(["Cat", "dog"], ["cat", "dog"], found_in="the teacher", expected_in="the data")
        >>> check_class_names(["LABEL_0", "LABEL_1"], ["cat", "dog"], found_in="the teacher", expected_in="the data")
        >>> check_class_names(["dog", "cat"], ["cat", "dog"], found_in="teacher.weights", expected_in="the data")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: teacher.weights: class 0: expected 'cat' as in the data, found 'dog': the same names \
in another order
    """
    theirs, ours = known_names(found), known_names(expected)
    if theirs is None or ours is None or _folded(theirs) == _folded(ours):
        return
    same_set = len(theirs) == len(ours) and set(_folded(theirs)) == set(_folded(ours))
    if len(theirs) == len(ours) and not same_set and (_counts(theirs) or _counts(ours)):
        return
    place = _first_difference(theirs, ours)
    if place is None:  # one list is the beginning of the other
        problem = f"expected {len(ours)} classes as in {expected_in}, found {len(theirs)}"
    else:
        problem = f"class {place}: expected {ours[place]!r} as in {expected_in}, found {theirs[place]!r}"
    order = ": the same names in another order" if same_set else ""
    raise InputError(f"{found_in}: {problem}{order}{f'; {way_out}' if way_out else ''}")


def check_declared_names(declared: Sequence[str], recorded: Sequence[str] | None, *, file: str, network: str) -> None:
    """Refuse a user's list of a network's classes that contradicts the names recorded with the network.

    The list may use different names, because that is its purpose. A name that appears in both must be at the same
    position.

    Example:
        >>> check_declared_names(["chat", "dog"], ["cat", "dog"], file="names.txt", network="teacher.weights")
        >>> check_declared_names(["dog", "cat"], ["cat", "dog"], file="names.txt", network="teacher.weights")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: names.txt: class 0: found 'dog', which is class 1 of teacher.weights; list the classes \
in the order of the network's outputs
    """
    names = known_names(recorded)
    if names is None:
        return
    if len(declared) != len(names):
        raise InputError(f"{file}: expected the {len(names)} classes of {network}, found {len(declared)}")
    places = {name: place for place, name in enumerate(_folded(names))}
    for place, (name, folded) in enumerate(zip(declared, _folded(declared), strict=True)):
        if places.get(folded, place) != place:
            raise InputError(
                f"{file}: class {place}: found {name!r}, which is class {places[folded]} of {network}; "
                "list the classes in the order of the network's outputs"
            )


def class_positions(names: Sequence[str]) -> dict[str, int]:
    """The position of each class by its name and by its name in lower case; not of names that several classes have.

    Example:
        >>> class_positions(["Cat", "dog", "crane", "crane"])
        {'Cat': 0, 'cat': 0, 'dog': 1}
    """
    positions: dict[str, int] = {}
    for place, (name, folded) in enumerate(zip(names, _folded(names), strict=True)):
        for spelling in dict.fromkeys((name.strip(), folded)):
            positions[spelling] = place if spelling not in positions else SEVERAL
    return {spelling: place for spelling, place in positions.items() if place != SEVERAL}


def known_names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """The names as a tuple; None if there are none, or only the placeholder names of transformers.

    Example:
        >>> known_names(["LABEL_0", "LABEL_1"]) is None, known_names(["cat", "dog"])
        (True, ('cat', 'dog'))
    """
    if not names or all(name == f"LABEL_{place}" for place, name in enumerate(names)):
        return None
    return tuple(names)


def names_from_id2label(id2label: Mapping[Any, Any] | None) -> tuple[str, ...] | None:
    """The names of a transformers configuration in the order of its outputs; None if it has none.

    Keys are numbers, or strings of numbers as some scripts write them; a mapping that does not number its classes from
    0 without gaps defines no order and is ignored.

    Example:
        >>> names_from_id2label({"1": "dog", "0": "cat"}), names_from_id2label({0: "LABEL_0", 1: "LABEL_1"})
        (('cat', 'dog'), None)
    """
    by_place = {str(place): str(name) for place, name in (id2label or {}).items()}
    places = [str(place) for place in range(len(by_place))]
    return known_names([by_place[place] for place in places]) if set(places) == by_place.keys() else None


def to_metadata(names: Sequence[str] | None) -> dict[str, str]:
    """Metadata for a safetensors file with these class names; empty without names.

    Example:
        >>> to_metadata(["cat", "dog"])
        {'class_names': '["cat", "dog"]'}
    """
    return {METADATA_KEY: json.dumps(list(names), ensure_ascii=False)} if names else {}


def from_metadata(metadata: Mapping[str, str] | None) -> tuple[str, ...] | None:
    """The class names in the metadata of a safetensors file; None if there are none.

    Raises:
        InputError: the entry is not a list of strings.

    Example:
        >>> from_metadata(to_metadata(["cat", "dog"])), from_metadata({"format": "pt"})
        (('cat', 'dog'), None)
    """
    text = (metadata or {}).get(METADATA_KEY)
    if text is None:
        return None
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"metadata {METADATA_KEY}: expected a JSON list of names, found {text[:60]!r}") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"metadata {METADATA_KEY}: expected a JSON list of names, found {text[:60]!r}")
    return tuple(names) or None


def recorded_names(path: str | Path) -> tuple[str, ...] | None:
    """The class names recorded in a file of weights or logits; None if there are none, or it is not safetensors.

    Raises:
        InputError: the file is missing or damaged, or its entry is not a list of names.

    Example:
        >>> recorded_names("teacher.pth") is None
        True
    """
    if Path(path).suffix != ".safetensors":
        return None
    with open_safetensors(path) as archive:
        metadata = archive.metadata()
    try:
        return from_metadata(metadata)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def read_class_names(path: str | Path) -> tuple[str, ...]:
    """A list of class names, in the order of the logits.

    One name per line; or a `.json` file with a list of names, or with the `id2label` of a transformers `config.json`;
    or a `.safetensors` file with names in its metadata.

    Raises:
        InputError: the file is missing or has no names, or a line between two names is empty.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "names.txt"
        >>> _ = path.write_text("cat\\ndog\\n")
        >>> read_class_names(path)
        ('cat', 'dog')
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        recorded = recorded_names(path)
        if recorded is None:
            raise InputError(f"{path}: expected class names in its metadata, found none")
        return recorded
    if path.suffix == ".json":
        return _names_of_json(path)
    names = [line.strip() for line in read_lines(path)]
    while names and not names[-1]:
        names.pop()
    if "" in names:  # skipping it would shift every class after it
        raise InputError(f"{path}: line {names.index('') + 1}: expected a name, found an empty line")
    if not names:
        raise InputError(f"{path}: expected one class name per line, found none")
    return tuple(names)


def _names_of_json(path: Path) -> tuple[str, ...]:
    with reading(path):
        content = json.loads(read_text(path, encoding="utf-8-sig"))
    names = content
    if isinstance(content, dict) and isinstance(content.get("id2label"), dict):
        names = names_from_id2label(content["id2label"])
    if isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
        return tuple(names)
    raise InputError(f"{path}: expected a JSON list of names or the id2label of a network, found neither")


def _counts(names: Sequence[str]) -> bool:
    """Whether the names are just the class indices."""
    return all(name == str(place) for place, name in enumerate(names))


def _folded(names: Sequence[str]) -> tuple[str, ...]:
    """The names in the form in which they are compared; unchanged if folding would merge two."""
    folded = tuple(name.strip().casefold() for name in names)
    return folded if len(set(folded)) == len(set(names)) else tuple(names)


def _first_difference(found: Sequence[str], expected: Sequence[str]) -> int | None:
    pairs = enumerate(zip(_folded(found), _folded(expected), strict=False))
    return next((place for place, (theirs, ours) in pairs if theirs != ours), None)
