"""What a cache was computed from: every field of it must agree before one row is used."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from typing import Any

import torch

from tpkd.record import Record, added
from tpkd.teacher.cache.columns import TOKENS, TOP_K_COLUMNS, Column, logits_columns, token_columns, top_k_columns

DTYPES = ("float16", "float32")
RESERVED = ("logits", "sample_ids", "view_ids", "written")

IMPORTED = "imported-"
"""What the fingerprint of a network begins with where logits were imported and no network is known."""

_TENSOR_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


def library_versions() -> dict[str, str]:
    """The versions of tpkd and torch that compute the rows; torch's without the suffix that names its device.

    Example:
        >>> sorted(library_versions())
        ['torch', 'tpkd']
    """
    return {"tpkd": version("tpkd"), "torch": torch.__version__.split("+")[0]}


@dataclass(frozen=True)
class CacheRecipe(Record):
    """Everything that decides the values of a cache: model, data, preprocessing, classes, precision and libraries.

    Example:
        >>> recipe = CacheRecipe("weights-a", "data", {"pad": 4}, None, 100)
        >>> recipe.differences(CacheRecipe("weights-b", "data", {"pad": 1}, None, 100))
        ["model_fingerprint: expected 'weights-a', found 'weights-b'", 'preprocessing.pad: expected 4, found 1']
    """

    model_fingerprint: str
    """Of the network; of imported logits `imported-` and a hash of their files."""
    dataset_fingerprint: str
    preprocessing: dict[str, Any]
    """The view recipe of images, the tokenisation of text: plain JSON values."""
    class_map: dict[str, Any] | None
    """From the classes of the teacher to those of the student; None where they are the same."""
    num_classes: int
    dtype: str = "float16"
    tensors: dict[str, int] = field(default_factory=dict)
    """Further tensors of every row beside the logits: name -> width."""
    versions: dict[str, str] = field(default_factory=library_versions)
    class_names: tuple[str, ...] | None = added(None)
    """What the columns of the logits are called; None in caches of earlier versions, which are taken as they are."""
    top_k: int | None = added(None)
    """How many of the largest classes a row keeps; None where it keeps all logits."""
    positions: int | None = added(None)
    """Of a language model: how many tokens of each row, a block of text, it predicts. None where a row is a sample."""
    top_p: float | None = added(None)
    """Of the `top_k` classes, only as many of the largest are kept as have this share of the probability together."""

    def __post_init__(self) -> None:
        """Refuse what no cache can hold, and keep values as they will come back from a file."""
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype: expected one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if self.num_classes < 2:
            raise ValueError(f"num_classes: expected at least 2, got {self.num_classes}")
        if self.class_names is not None and (
            len(self.class_names) != self.num_classes or len(set(self.class_names)) != self.num_classes
        ):
            raise ValueError(
                f"class_names: expected {self.num_classes} different names, got {len(self.class_names)}, "
                f"{len(set(self.class_names))} of them different"
            )
        if self.top_k is not None and not 1 <= self.top_k <= self.num_classes:
            raise ValueError(f"top_k: expected from 1 to all {self.num_classes} classes, got {self.top_k}")
        if self.positions is not None and self.positions < 1:
            raise ValueError(f"positions: expected at least 1, got {self.positions}")
        if self.top_p is not None and (self.top_k is None or not 0 < self.top_p < 1):
            raise ValueError(f"top_p: expected a share between 0 and 1 beside top_k, got {self.top_p}")
        reserved = RESERVED if self.top_k is None else (*RESERVED, *TOP_K_COLUMNS)
        reserved = reserved if self.positions is None else (*reserved, TOKENS)
        for name, width in self.tensors.items():
            if not _TENSOR_NAME.fullmatch(name) or name in reserved:
                raise ValueError(f"tensors: expected a name other than {', '.join(reserved)}, got {name!r}")
            if width < 1:
                raise ValueError(f"tensors[{name!r}]: expected a width of at least 1, got {width}")
        for name in ("preprocessing", "class_map"):
            # A tuple comes back from JSON as a list; without this a recipe would differ from its own file.
            object.__setattr__(self, name, json.loads(json.dumps(getattr(self, name), allow_nan=False)))

    @property
    def outputs(self) -> dict[str, int]:
        """What the model gives for a row, by name and width, the logits first."""
        return {"logits": self.num_classes, **self.tensors}

    @property
    def columns(self) -> dict[str, Column]:
        """What a row keeps: all logits or the largest classes, its tokens if it is text, then the further tensors."""
        positions = self.positions
        if self.top_k is None:
            answers = logits_columns(self.num_classes, self.dtype, positions)
        else:
            may_be_empty = self.top_p is not None
            answers = top_k_columns(self.num_classes, self.dtype, self.top_k, positions, may_be_empty=may_be_empty)
        text = {} if positions is None else token_columns(self.num_classes, positions)
        return answers | text | {name: Column(self.dtype, width, positions) for name, width in self.tensors.items()}

    def rows_of(self, samples: int) -> int:
        """How many rows hold as many answers as so many samples would: fewer where a row has many positions.

        Example:
            >>> text = CacheRecipe("m", "d", {}, None, 100, positions=255)
            >>> CacheRecipe("m", "d", {}, None, 100).rows_of(8192), text.rows_of(8192), text.rows_of(10)
            (8192, 32, 1)
        """
        return max(1, samples // (self.positions or 1))

    def differences(self, found: "CacheRecipe") -> list[str]:
        """Every field in which another recipe departs from this one, as `field: expected …, found …`.

        Class names that one side does not have are not compared.
        """
        named = self.class_names is not None and found.class_names is not None
        return [
            difference
            for item in fields(self)
            if item.name != "class_names" or named
            for difference in _differences(item.name, getattr(self, item.name), getattr(found, item.name))
        ]


def is_imported(recipe: CacheRecipe) -> bool:
    """Whether the rows come from files of logits, not from a network.

    Example:
        >>> [is_imported(CacheRecipe(model, "data", {}, None, 3)) for model in ("imported-12ab", "12ab")]
        [True, False]
    """
    return recipe.model_fingerprint.startswith(IMPORTED)


def _differences(path: str, expected: Any, found: Any) -> Iterator[str]:
    if expected == found:
        return
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(expected.keys() | found.keys()):
            yield from _differences(f"{path}.{key}", expected.get(key), found.get(key))
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple) and len(expected) == len(found):
        # Two orders of a thousand class names differ nearly everywhere; the first place says enough.
        places = [index for index, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1]]
        more = f" (and {len(places) - 1} more entries)" if len(places) > 1 else ""
        yield from (
            difference + more
            for difference in _differences(f"{path}[{places[0]}]", expected[places[0]], found[places[0]])
        )
    else:
        yield f"{path}: expected {_short(expected)}, found {_short(found)}"


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
