"""What the settings say about the mechanism: blocking, what remains, continuations, and checked theorems."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.evidence.setting import RESULTS, Setting
from tpkd.compare.verdicts import Measured, judge_continuation, judge_growth, judge_remaining, measure
from tpkd.files import read_text
from tpkd.mechanism.record import (
    BlockingRecord,
    CertificatesRecord,
    ContinuationRecord,
    ExactHeadRecord,
    StudyRecord,
)

KINDS: dict[str, type[StudyRecord]] = {
    "blocking": BlockingRecord,
    "certificates": CertificatesRecord,
    "continuation": ContinuationRecord,
    "exact-head": ExactHeadRecord,
}
_MAX_BYTES = 1 << 26


def study_paths(results: Path = RESULTS) -> list[Path]:
    """Every committed study."""
    return sorted(path for path in results.rglob("studies/**/*.json") if path.stem in KINDS)


def read_study(path: Path) -> StudyRecord:
    """The record of a study."""
    return KINDS[path.stem].from_json(read_text(path, _MAX_BYTES))


@dataclass(frozen=True)
class Theorems:
    """What was checked case by case, over all committed studies."""

    studies: int
    statements: int
    """Different statements of the theory."""
    cases: int
    violations: int


def count_theorems(results: Path = RESULTS) -> Theorems:
    """Cases of the theory's statements, and how many break one."""
    paths = study_paths(results)
    checks = [check for path in paths for check in read_study(path).checks if check.theorem]
    return Theorems(
        len(paths),
        len({check.statement for check in checks}),
        sum(check.cases for check in checks),
        sum(check.violations for check in checks),
    )


@dataclass(frozen=True)
class Blocking:
    """Blocking under CE in a setting."""

    first: float
    last: float
    """Share of the training pairs in the first and the last epoch, means over seeds."""
    growth: Measured
    growth_verdict: str
    remaining: float | None
    """Conditional KL on blocked test examples, mean over seeds; None where nothing is blocked."""
    floor: float | None
    remaining_verdict: str


def blocking(setting: Setting) -> Blocking | None:
    """Blocking over the CE cells; None where they kept no curves."""
    cells = [cell for cell in setting.record.cells if cell.method == "ce"]
    shares = [cell.curves.blocked_share for cell in cells if cell.curves and len(cell.curves.epochs) > 1]
    if not shares:
        return None
    grown = [each[-1] - each[0] for each in shares]
    finals = [cell.final.conditional_loss_blocked for cell in cells if cell.final]
    left = [value for value in finals if value is not None]
    floors = setting.record.noise_floor
    return Blocking(
        measure([each[0] for each in shares]).mean,
        measure([each[-1] for each in shares]).mean,
        measure(grown),
        judge_growth(grown),
        measure(left).mean if left else None,
        measure(floors).mean if floors else None,
        judge_remaining(left, floors or None),
    )


@dataclass(frozen=True)
class Continued:
    """How far TPKD ends from another objective, over all continuations of a setting."""

    other: str
    conditional: Measured
    label: Measured
    verdict: str


def continuations(directory: Path) -> Iterator[Continued]:
    """All repeats of all continuations in a directory of results, TPKD against CE and against compensation only."""
    records = [read_study(path) for path in study_paths(directory) if path.stem == "continuation"]
    found = [record for record in records if isinstance(record, ContinuationRecord)]
    if not found:
        return
    for other in ("ce", "compensation-only"):
        conditional, label = (
            [value for record in found for value in record.differences(other, name)]
            for name in ("conditional_loss", "label_loss")
        )
        yield Continued(other, measure(conditional), measure(label), judge_continuation(conditional, label))
