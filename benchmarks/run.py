"""Measure the losses and write RESULTS.md and its plot: `python -m benchmarks.run [--quick] [--out DIRECTORY]`."""

import argparse
import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from benchmarks import beyond, cache, cache_scale, certificate, diagnose, language, token_cache, training
from benchmarks.linear_head import LinearResult, measure_linear
from benchmarks.losses import COMPILED, DTYPES, EAGER, SCALES, SHAPES, SLOW, Case, Loss, gradient_error, training_call
from benchmarks.memory import peak_bytes
from benchmarks.report import write_report
from benchmarks.steps import measure_steps
from benchmarks.timing import interleaved_seconds

GROWTH_IN_CLASSES = (16, (1000, 5000, 20_000, 60_000, 150_000))
GROWTH_IN_ROWS = ((16, 64, 256, 1024), 1000)


@dataclass
class CaseResult:
    """What was measured on one case; a loss that failed stands in `failures` with its reason."""

    case: Case
    seconds: dict[str, float] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    gradient_error: float = math.nan
    failures: dict[str, str] = field(default_factory=dict)


@dataclass
class Results:
    """Everything that a run measured."""

    cases: list[CaseResult]
    growth_in_classes: dict[str, dict[int, float]]
    growth_in_rows: dict[str, dict[int, float]]
    steps: dict[str, dict[str, float]]
    linear: LinearResult
    parts: list[tuple[str, float, float]]
    """(what, measured, most) of the other parts: diagnosis, certificates, cache, training."""


def compile_losses() -> dict[str, Loss]:
    """Fresh compiled losses, for one shape and dtype."""
    torch.compiler.reset()
    return {f"{name}, compiled": torch.compile(loss, fullgraph=True, dynamic=False) for name, loss in COMPILED.items()}


def measure_case(case: Case, compiled: dict[str, Loss], seconds: float) -> CaseResult:
    """Times in turns and peak memory of every loss on one case."""
    result = CaseResult(case)
    inputs = case.make()
    working = {}
    for name, loss in (EAGER | compiled | SLOW).items():
        call = training_call(loss, inputs)
        try:
            call()
        except Exception as error:  # a loss that fails is a result, whatever the reason
            result.failures[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            continue
        working[name] = call
    # Each group in turns: what is compared directly runs next to each other.
    for group, least in ((EAGER, 7), (compiled, 7), (SLOW, 3)):
        calls = {name: working[name] for name in group if name in working}
        result.seconds |= interleaved_seconds(calls, seconds=seconds, least=least) if calls else {}
    for name in ("CE", "KD", "TPKD", *SLOW):
        if name in working:
            inputs[0].grad = None
            result.peak[name] = peak_bytes(training_call((EAGER | SLOW)[name], inputs))
    result.gradient_error = gradient_error(case)
    return result


def measure_growth(sizes: dict[int, Case], seconds: float) -> dict[str, dict[int, float]]:
    """Seconds of KD and TPKD by size."""
    times: dict[str, dict[int, float]] = {"KD": {}, "TPKD": {}}
    for size, case in sizes.items():
        inputs = case.make()
        taken = interleaved_seconds({name: training_call(EAGER[name], inputs) for name in times}, seconds=seconds)
        for name, value in taken.items():
            times[name][size] = value
    return times


def measure_parts(*, quick: bool) -> list[tuple[str, float, float]]:
    """What the rest of the project promises about its own cost."""
    parts = [*beyond.rows(0.3 if quick else 1.0), *certificate.rows(), *cache.rows()]
    parts += cache_scale.rows(*(10**6, 10**5) if quick else ())
    parts += language.rows(0.3 if quick else 2.0)
    parts += token_cache.rows()
    parts += diagnose.rows(20_000 if quick else 1_000_000)
    return parts + training.rows(2.0 if quick else 30.0)


def main() -> None:
    """Run everything, in about ten minutes, or a tenth of it with `--quick`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two shapes, short rounds; to see that it runs")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each group of a case")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="directory of RESULTS.md and its plot")
    arguments = parser.parse_args()
    seconds = 0.3 if arguments.quick else arguments.seconds
    shapes = SHAPES[:3:2] if arguments.quick else SHAPES
    cases = []
    for dtype in DTYPES:
        for rows, num_classes in shapes:
            compiled = compile_losses()
            for kind in SCALES:
                case = Case(rows, num_classes, kind, dtype)
                cases.append(measure_case(case, compiled, seconds))
                ratio = cases[-1].seconds["TPKD"] / cases[-1].seconds["KD"]
                print(f"{case}: TPKD / KD = {ratio:.2f}", flush=True)
    rows, class_counts = GROWTH_IN_CLASSES
    row_counts, num_classes = GROWTH_IN_ROWS
    results = Results(
        cases,
        measure_growth({count: Case(rows, count, "random", "float32") for count in class_counts}, seconds),
        measure_growth({count: Case(count, num_classes, "random", "float32") for count in row_counts}, seconds),
        measure_steps(seconds),
        measure_linear(seconds),
        measure_parts(quick=arguments.quick),
    )
    write_report(results, arguments.out)
    print(f"wrote {arguments.out / 'RESULTS.md'}")


if __name__ == "__main__":
    main()
