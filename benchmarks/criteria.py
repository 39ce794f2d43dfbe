"""What the project promises about cost, each promise beside what was measured."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.run import CaseResult, Results

MOST_TIME = {
    # number of classes: limits of TPKD / KD on random and peaked, and on flat logits
    100: (1.5, 1.5),
    150: (1.5, 1.5),
    1000: (0.9, 0.9),
    21841: (0.6, 0.7),
    151936: (0.75, 1.0),
}
MOST_COMPILED_TIME = 1.1
MOST_ERROR = {100: 2e-6, 150: 2e-6, 1000: 2e-6, 21841: 5e-5, 151936: 5e-5}
MOST_SLOPE = 1.1
MOST_STEP = 1.02
SCRATCH_BYTES = 4_000_000
MOST_LINEAR_BYTES = 300e6
MOST_LINEAR_TIME = 1.15


@dataclass(frozen=True)
class Criterion:
    """One promise: what is measured, its limit, what was found."""

    name: str
    limit: float
    found: float
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.found <= self.limit


def ratio(result: "CaseResult", one: str, other: str) -> float:
    """Time of one loss over that of another; nan where one of them failed."""
    return result.seconds.get(one, math.nan) / result.seconds.get(other, math.nan)


def slope(times: dict[int, float]) -> float:
    """Least-squares slope of log time over log size."""
    x, y = [math.log(size) for size in times], [math.log(value) for value in times.values()]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def case_criteria(result: "CaseResult") -> list[Criterion]:
    """The promises about one case."""
    case = result.case
    where = f"({case.rows}, {case.num_classes}) {case.kind} {case.dtype}"
    limits = MOST_TIME[case.num_classes]
    width = {"float32": 4, "bfloat16": 2}[case.dtype]
    gradient = case.rows * case.num_classes * width
    allowed = gradient + max(SCRATCH_BYTES, 4 * case.num_classes * width)
    criteria = [
        Criterion(f"time, TPKD / KD, {where}", limits[case.kind == "flat"], ratio(result, "TPKD", "KD"), "×"),
        Criterion(
            f"time compiled, TPKD / KD, {where}",
            MOST_COMPILED_TIME,
            ratio(result, "TPKD, compiled", "KD, compiled"),
            "×",
        ),
        Criterion(f"peak memory, TPKD / KD, {where}", 1.0, result.peak["TPKD"] / result.peak["KD"], "×"),
        Criterion(f"peak memory, {where}", allowed / 1e6, result.peak["TPKD"] / 1e6, " MB"),
    ]
    if case.dtype == "float32":
        criteria.append(Criterion(f"gradient error, {where}", MOST_ERROR[case.num_classes], result.gradient_error))
    return criteria


def all_criteria(results: "Results") -> list[Criterion]:
    """Every promise, in the order of the page."""
    criteria = [criterion for result in results.cases for criterion in case_criteria(result)]
    criteria.append(Criterion("log-log slope of time in K", MOST_SLOPE, slope(results.growth_in_classes["TPKD"])))
    for name, times in results.steps.items():
        criteria.append(Criterion(f"training step, TPKD / CE, {name}", MOST_STEP, times["TPKD / CE"], "×"))
    linear = results.linear
    lengths = sorted(linear.bytes_beyond)
    features = 4 * 256 * (lengths[-1] - lengths[0]) / 1e6
    growth = abs(linear.bytes_beyond[lengths[-1]] - linear.bytes_beyond[lengths[0]]) / 1e6
    criteria += [
        Criterion(
            "linear loss, memory beyond inputs and gradients at 4,096 rows",
            MOST_LINEAR_BYTES / 1e6,
            linear.bytes_beyond[4096] / 1e6,
            " MB",
        ),
        Criterion(f"linear loss, growth of that from {lengths[0]} to {lengths[-1]} rows", features, growth, " MB"),
        Criterion(
            "linear loss, time over the dense one", MOST_LINEAR_TIME, linear.chunked_seconds / linear.dense_seconds, "×"
        ),
    ]
    return criteria + [Criterion(what, most, measured) for what, measured, most in results.parts]
