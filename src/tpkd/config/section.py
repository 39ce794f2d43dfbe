"""What every section of a configuration has in common."""

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, PositiveInt, WithJsonSchema

SECTION = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
"""Frozen; unknown keys and numbers that are not finite are refused; what stands below a key describes it."""

SEEDS = 2**32
"""As many seeds as NumPy's generator knows: the fewest of all that a run seeds."""


def _check_seed(seed: int) -> int:
    if not 0 <= seed < SEEDS:
        raise ValueError(f"expected a seed from 0 to {SEEDS - 1}, found {seed}")
    return seed


def _check_epochs(epochs: tuple[int, ...]) -> tuple[int, ...]:
    repeated = [epoch for epoch in epochs if epochs.count(epoch) > 1]
    if repeated:
        raise ValueError(f"expected every epoch once, found {repeated[0]} twice")
    return epochs


Epochs = Annotated[tuple[PositiveInt, ...], AfterValidator(_check_epochs)]
"""After each of which something is kept or looked at."""

_SEED_SCHEMA = {"type": "integer", "minimum": 0, "maximum": SEEDS - 1}
Seed = Annotated[int, AfterValidator(_check_seed), WithJsonSchema(_SEED_SCHEMA)]
