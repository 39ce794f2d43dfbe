"""The section `variants`: an objective a second time in a comparison, under a name and with settings of its own."""

import re
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from tpkd.config.section import PlainData, Section
from tpkd.errors import shortened

_NOT_OVERRIDDEN = ("objective", "output", "seed", "methods", "variants")
_SYMBOLS = {"temperature": "T", "alpha": "α", "beta": "β", "optimizer.learning_rate": "rate"}
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class VariantConfig(Section):
    """An objective with settings of its own, beside the objective itself; its name stands wherever a method's may."""

    objective: str
    """A name of `tpkd methods`. What `methods` sets for it holds here too, below what stands here."""
    settings: PlainData = Field({})
    """Settings of the objective, such as `{temperature: 4}`."""
    overrides: PlainData = Field({})
    """Other keys (dotted key -> value), such as `{optimizer.learning_rate: 0.01}`."""
    title: str | None = None
    """In tables and charts; default: the title of the objective and the settings."""

    @model_validator(mode="after")
    def _differs_from_its_objective(self) -> Self:
        if not self.settings and not self.overrides:
            raise ValueError(f"expected settings or overrides, found neither: it would be {self.objective} again")
        for key in self.overrides:
            section = key.split(".")[0]
            if section in _NOT_OVERRIDDEN:
                way_out = ": settings takes those of the objective" if section == "objective" else ""
                raise ValueError(f"overrides: expected other keys than {section}, found {shortened(key)!r}{way_out}")
        return self

    @property
    def assignments(self) -> list[tuple[str, Any]]:
        """What it sets, as dotted keys and values."""
        own = {f"objective.settings.{name}": value for name, value in self.settings.items()}
        return list((own | self.overrides).items())

    def title_of(self, objective: str) -> str:
        """Its title, given that of its objective.

        Example:
            >>> VariantConfig(objective="tpkd", settings={"temperature": 4.0, "beta": 1}).title_of("TPKD")
            'TPKD (T = 4, β = 1)'
        """
        if self.title is not None:
            return self.title
        said = (
            f"{_SYMBOLS.get(key, key)} = {_written(value)}" for key, value in (self.settings | self.overrides).items()
        )
        return f"{objective} ({', '.join(said)})"


def _written(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _check_names(variants: dict[str, VariantConfig]) -> dict[str, VariantConfig]:
    for name in variants:
        if not _NAME.fullmatch(name):
            raise ValueError(f"expected names of lower-case words joined by '-', found {shortened(name, 60)!r}")
    return variants


Variants = Annotated[dict[str, VariantConfig], AfterValidator(_check_names)]
"""Variants by their names."""
