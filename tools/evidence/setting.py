"""A setting of the evidence as it is committed: what is known about every cell, and its packed scores."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tpkd.compare.record import CellCurves, FinalState
from tpkd.compare.verdicts import AccuracyClaim
from tpkd.errors import InputError
from tpkd.files import read_parsed, read_text
from tpkd.quality.packed import ExampleScores, read_packed
from tpkd.record import Record

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
PLAN = RESULTS / "evidence.yaml"
RECORD_NAME = "setting.json"
EXAMPLES_NAME = "examples"
LABELS_NAME = "labels.npy"
START, TEACHER = "start", "teacher"
"""Names of packed scores that are no method's."""


@dataclass(frozen=True)
class CellFacts:
    """What is known about one cell beside the scores of its examples."""

    method: str
    seed: int
    seconds: float
    logits_sha256: str
    """Of the test logits that were scored."""
    curves: CellCurves | None
    final: FinalState | None


@dataclass(frozen=True)
class MethodFacts:
    """A method of the grid."""

    name: str
    title: str
    objective: str
    settings: dict[str, Any]
    learning_rate: float | None


@dataclass(frozen=True)
class SettingRecord(Record):
    """One grid."""

    data: str
    classes: int
    test_samples: int
    methods: tuple[MethodFacts, ...]
    """In the order of the tables."""
    cells: tuple[CellFacts, ...]
    """By method, then by seed."""
    noise_floor: tuple[float, ...]
    """Conditional KL between pairs of CE students of different seeds, on the blocked test examples of the first."""


@dataclass(frozen=True)
class Plan:
    """What evidence.yaml says about a setting."""

    name: str
    title: str
    role: str
    family: str
    cells: int | None = None
    """How many there will be; None while that is not known."""
    claims: tuple[AccuracyClaim, ...] = ()
    """In the place of those of all settings, if there are any."""
    titles: dict[str, str] = field(default_factory=dict)
    """Of methods, in the place of those that the importer makes of their settings."""


@dataclass(frozen=True)
class Setting:
    """A setting with all that is committed about it."""

    plan: Plan
    record: SettingRecord
    directory: Path

    @cached_property
    def labels(self) -> np.ndarray:
        """Of the test examples."""
        found: np.ndarray = np.load(self.directory / EXAMPLES_NAME / LABELS_NAME, allow_pickle=False)
        return found.astype(np.int64)

    @cached_property
    def scores(self) -> dict[str, ExampleScores]:
        """Packed scores by method, and those of the start and the teacher where they were kept."""
        names = [*(method.name for method in self.record.methods), START, TEACHER]
        paths = {name: self.directory / EXAMPLES_NAME / f"{name}.npz" for name in names}
        return {name: read_packed(path, self.labels) for name, path in paths.items() if path.exists()}

    def title(self, method: str) -> str:
        """The name of a method for people."""
        known = {each.name: each.title for each in self.record.methods} | self.plan.titles
        return known.get(method, method)

    @property
    def finished(self) -> bool:
        """Whether all planned cells are there; where their number is not planned, what is there counts."""
        return self.plan.cells is None or len(self.record.cells) >= self.plan.cells

    @property
    def progress(self) -> str:
        """How much of the grid there is."""
        done, planned = len(self.record.cells), self.plan.cells
        if planned is None or done == planned:
            return f"{done:,} cells"
        return f"{done:,} of {planned:,} cells"


def read_plan(path: Path = PLAN) -> tuple[tuple[AccuracyClaim, ...], tuple[Plan, ...]]:
    """The claims and the settings, as they were written down before the runs."""
    found = yaml.safe_load(read_text(path, 1 << 20))
    plans = (
        Plan(name, **{**about, "claims": _claims(about.get("claims", ()))}) for name, about in found["settings"].items()
    )
    return _claims(found["claims"]), tuple(plans)


def _claims(plain: Iterable[dict[str, Any]]) -> tuple[AccuracyClaim, ...]:
    return tuple(
        AccuracyClaim(
            claim["left"],
            claim["right"],
            claim["statement"],
            sign=-1 if "below" in claim else 1,
            limit=claim.get("below", 0) / 100,
        )
        for claim in plain
    )


def read_setting(plan: Plan, results: Path = RESULTS) -> Setting | None:
    """What is committed about a setting; None where nothing is yet."""
    directory = results / plan.name
    record = read_parsed(directory / RECORD_NAME, SettingRecord.from_json)
    return None if record is None else Setting(plan, record, directory)


def read_settings(results: Path = RESULTS) -> tuple[tuple[AccuracyClaim, ...], tuple[Plan, ...], list[Setting]]:
    """Claims, plans, and the settings of which there is something."""
    claims, plans = read_plan(results / PLAN.name)
    found = [setting for plan in plans if (setting := read_setting(plan, results)) is not None]
    unknown = {path.parent.name for path in results.glob(f"*/{RECORD_NAME}")} - {plan.name for plan in plans}
    if unknown:
        raise InputError(f"{PLAN.name}: settings: expected all that have records, found none for {sorted(unknown)}")
    return claims, plans, found
