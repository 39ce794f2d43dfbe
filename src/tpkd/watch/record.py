"""What the live page is told: the cells and their newest numbers, and the curves of one cell."""

from dataclasses import dataclass

from tpkd.record import Record


@dataclass(frozen=True)
class PanelFacts:
    """A picture of the page."""

    name: str
    title: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class CellFacts:
    """One run in the table of all."""

    number: int
    """In the name of the file with its curves."""
    name: str
    state: str
    """`waiting`, `running`, `not finished`, `stopped`, `failed` or `finished`."""
    version: int
    """Grows with its curves."""
    step: int
    num_steps: int | None
    changed: float | None
    """When its metrics were written last, in seconds since 1970."""
    latest: dict[str, float | None]
    """The newest value of each panel."""
    unreadable: int
    """Lines of its metrics that are not ours."""
    problem: str
    """Why it failed."""


@dataclass(frozen=True)
class WatchRecord(Record):
    """The state of a run or a grid."""

    title: str
    is_grid: bool
    written: float
    """Seconds since 1970."""
    every: float | None
    """Seconds after which there may be something new; None where nobody watches any more."""
    panels: tuple[PanelFacts, ...]
    cells: tuple[CellFacts, ...]


@dataclass(frozen=True)
class CurvesRecord(Record):
    """The curves of one cell: for each panel its steps and its values."""

    number: int
    version: int
    steps: dict[str, tuple[int, ...]]
    values: dict[str, tuple[float, ...]]
