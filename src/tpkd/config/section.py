"""What every section of a configuration has in common."""

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from tpkd.errors import InputError, shortened
from tpkd.files import check_path
from tpkd.remote_files import is_remote


class Section(BaseModel):
    """Frozen; unknown keys and numbers that are not finite are refused; the docstring of a key describes it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


DATA_PLACEHOLDER = "$TPKD_DATA"
"""Replaced in paths by the environment variable of that name; no other variable is ever expanded."""
_NAME_KINDS = ("builtin", "timm")

SEEDS = 2**32
"""The number of seeds NumPy's generator accepts, the smallest range of all generators that a run seeds."""


def _check_seed(seed: int) -> int:
    if not 0 <= seed < SEEDS:
        raise ValueError(f"expected a seed from 0 to {SEEDS - 1}, found {seed}")
    return seed


_SEED_SCHEMA = {"type": "integer", "minimum": 0, "maximum": SEEDS - 1}
Seed = Annotated[int, AfterValidator(_check_seed), WithJsonSchema(_SEED_SCHEMA)]

LARGEST_COUNT = 10**9
"""Upper limit of every count, so that epochs x samples stays within 64 bits."""
SMALLEST, LARGEST = 1e-30, 1e18
"""Range of float settings: the product of two stays finite in float32."""
MAX_DEPTH = 32
"""Nested lists and sections; deeper nesting is a mistake."""

Count = Annotated[int, Field(gt=0, le=LARGEST_COUNT)]
CountOrZero = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
"""A count that may be 0."""


def _check_epochs(epochs: tuple[int, ...]) -> tuple[int, ...]:
    seen: set[int] = set()
    for epoch in epochs:
        if epoch in seen:
            raise ValueError(f"expected every epoch once, found {epoch} twice")
        seen.add(epoch)
    return epochs


Epochs = Annotated[tuple[Count, ...], AfterValidator(_check_epochs)]
"""Distinct epochs after which something is saved or measured."""


def _check_float(value: float) -> float:
    if value and not SMALLEST <= abs(value) <= LARGEST:
        raise ValueError(f"expected a number that float32 computes with, {SMALLEST} to {LARGEST}, found {value}")
    return value


Real = Annotated[float, AfterValidator(_check_float)]
PositiveReal = Annotated[float, Field(gt=0), AfterValidator(_check_float)]
NonNegativeReal = Annotated[float, Field(ge=0), AfterValidator(_check_float)]

LocalPath = Annotated[str, AfterValidator(check_path)]


def _check_readable(path: str) -> str:
    return path if is_remote(path) else check_path(path)


ReadablePath = Annotated[str, AfterValidator(_check_readable)]
"""A path on this machine, or an address of a store that is read: `s3://`, `gs://`, `hf://`."""


def _check_output(output: str) -> str:
    if DATA_PLACEHOLDER in output:
        raise ValueError(f"expected a path without {DATA_PLACEHOLDER}, which is for data and weights only")
    return check_path(output)


def _check_model(name: str) -> str:
    kind, _, path = name.partition(":")
    if path and kind not in _NAME_KINDS:
        check_path(path)
    return name


def _check_data(name: str) -> str:
    path = name.partition(":")[2]
    if path:
        _check_readable(path)
    return name


Output = Annotated[str, AfterValidator(_check_output)]
Model = Annotated[str, AfterValidator(_check_model)]
"""A network by name, or a kind and a path: `builtin:mlp`, `hf:PATH_OR_ID`."""
DataSource = Annotated[str, AfterValidator(_check_data)]
"""A data set by name, or a kind and a path or an address: `csv:PATH`, `csv:s3://BUCKET/PATH`."""


def check_plain(value: Any, depth: int = 0) -> Any:
    """Refuse anything but plain JSON data, because a run's saved configuration must read back unchanged.

    Example:
        >>> check_plain({"hidden": [8, 8]})
        {'hidden': [8, 8]}
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"expected at most {MAX_DEPTH} levels, found more")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"expected keys that are words, found {shortened(repr(key), 60)}")
            check_plain(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            check_plain(item, depth + 1)
    elif not isinstance(value, str | int | float | None) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"expected text, numbers, lists and sections, found {shortened(repr(value), 60)}")
    return value


def _check_options(options: dict[str, Any]) -> dict[str, Any]:
    check_plain(options)
    tokenizer = options.get("tokenizer")
    if isinstance(tokenizer, str):
        try:
            check_path(tokenizer)
        except InputError as error:
            raise ValueError(f"tokenizer: {error}") from error
    return options


def _numbered_names(value: Any) -> Any:
    """Let `0: layers.0` be written without quotes, because layers of other code bases often have numbers for names."""
    if not isinstance(value, dict):
        return value
    return {str(key) if type(key) is int else key: item for key, item in value.items()}


WeightMap = Annotated[dict[str, str | None], BeforeValidator(_numbered_names)]
"""Names of weights in another code base -> names in the network, or null."""
PlainData = Annotated[dict[str, Any], AfterValidator(check_plain)]
ModelOptions = Annotated[dict[str, Any], AfterValidator(_check_options)]
