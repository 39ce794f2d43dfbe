"""RESULTS.md and its plot from what a run measured; nothing else writes them."""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from benchmarks.criteria import Criterion, all_criteria, ratio, slope
from benchmarks.losses import SLOW

from tpkd.objectives.kernels import cpu

if TYPE_CHECKING:
    from benchmarks.run import CaseResult, Results

PLOT = "results.svg"
GPU_COUNTS = Path(__file__).with_name("gpu-counts.json")
"""Written by `benchmarks.gpu_counts`, where Triton is."""


def write_report(results: "Results", directory: Path) -> None:
    """Write the page and the plot into `directory`."""
    criteria = all_criteria(results)
    sections = [
        _opening(criteria),
        _machine(),
        f"![Time of TPKD over KD, and growth with the number of classes]({PLOT})",
        _times(results.cases),
        _memory(results.cases),
        _growth(results),
        _steps(results),
        _linear(results),
        *_gpu_counts(),
        _criteria(criteria),
    ]
    (directory / "RESULTS.md").write_text("\n\n".join(sections) + "\n")
    _plot(results, directory / PLOT)


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: float) -> str:
    if value != value:
        return "failed"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _range(values: list[float]) -> str:
    return f"{_number(min(values))} to {_number(max(values))}"


def _opening(criteria: list[Criterion]) -> str:
    missed = [criterion for criterion in criteria if not criterion.met]
    lines = [
        "# What the protected loss costs",
        "",
        "Written by `make bench` alone. Times are the lower quartile of forward and backward passes taken "
        "in turns in one run; memory is the peak of the profiler's memory events beyond the inputs. KD is "
        "`F.cross_entropy(z, y) + T*T*F.kl_div(F.log_softmax(z/T, -1), F.log_softmax(zt/T, -1), "
        'reduction="batchmean", log_target=True)` with T = 4. TPKD is `tpkd_loss` as it is installed; TPKD as tensor '
        "code is the same loss where no kernel was built, and on accelerators, of which there was none to measure on.",
        "",
        f"Of {len(criteria)} promises {len(criteria) - len(missed)} are met.",
    ]
    if missed:
        lines += ["Not met:", ""]
        lines += [f"- {c.name}: {_number(c.found)}{c.unit}, limit {_number(c.limit)}{c.unit}" for c in missed]
    return "\n".join(lines)


def _machine() -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "entmax"))
    threads = f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"
    kernel = "without the kernel" if cpu._kernel is None else "with the kernel"
    return (
        f"Machine: {model}, {os.cpu_count()} cores, {threads}; "
        f"{platform.system()}, Python {platform.python_version()}, {versions}, tpkd {kernel}."
    )


def _case_name(result: "CaseResult") -> str:
    case = result.case
    return f"({case.rows}, {case.num_classes}) {case.kind} {case.dtype}"


def _times(cases: list["CaseResult"]) -> str:
    header = ["(N, K), logits", "KD, ms", "TPKD, ms", "TPKD / KD", "TPKD / CE", "torch.compile: TPKD / KD", *SLOW]
    rows = []
    for result in cases:
        milliseconds = {name: value * 1000 for name, value in result.seconds.items()}
        rows.append(
            [
                _case_name(result),
                _number(milliseconds["KD"]),
                _number(milliseconds["TPKD"]),
                f"**{_number(ratio(result, 'TPKD', 'KD'))}**",
                _number(ratio(result, "TPKD", "CE")),
                _number(ratio(result, "TPKD, compiled", "KD, compiled")),
                *(f"{_number(ratio(result, name, 'KD'))} × KD" for name in SLOW),
            ]
        )
    slower = [_case_name(result) for result in cases if ratio(result, "TPKD", "KD") > 1]
    eager = "TPKD is faster than KD everywhere" if not slower else f"TPKD is slower than KD at: {'; '.join(slower)}"
    compiled = [ratio(result, "TPKD, compiled", "KD, compiled") for result in cases]
    text = f"{eager}; through `torch.compile` it takes {_range(compiled)} times KD's time."
    cheaper = sum(ratio(result, "TPKD", "CE") < 1 for result in cases)
    tensor_code = [ratio(result, "TPKD as tensor code", "KD") for result in cases]
    failures = [f"- {_case_name(r)}, {name}: {reason}" for r in cases for name, reason in r.failures.items()]
    failed = "\n\nFailed:\n\n" + "\n".join(failures) if failures else "\n\nNothing failed."
    note = (
        "With few classes a call is a fraction of a millisecond, most of it spent on Python and autograd. "
        f"Cross-entropy, which learns nothing from a teacher, is slower in {cheaper} of {len(cases)} cases. "
        f"Without the kernel, TPKD takes {_range(tensor_code)} times KD's time."
    )
    return f"## Time\n\n{_table(header, rows)}\n\n{text} {note}{failed}"


def _memory(cases: list["CaseResult"]) -> str:
    header = ["(N, K), logits", "one gradient, MB", "TPKD, MB", "KD, MB", "CE, MB", *(f"{name}, MB" for name in SLOW)]
    rows = []
    for result in cases:
        case = result.case
        gradient = case.rows * case.num_classes * {"float32": 4, "bfloat16": 2}[case.dtype]
        peaks = [result.peak.get(name, float("nan")) / 1e6 for name in ("TPKD", "KD", "CE", *SLOW)]
        rows.append([_case_name(result), _number(gradient / 1e6), *map(_number, peaks)])
    return f"## Memory\n\n{_table(header, rows)}"


def _growth(results: "Results") -> str:
    parts = ["## Growth"]
    for what, times in (("K, 16 rows", results.growth_in_classes), ("N, 1,000 classes", results.growth_in_rows)):
        sizes = list(next(iter(times.values())))
        header = [f"ms by {what}", *(f"{size:,}" for size in sizes), "log-log slope"]
        rows = [
            [name, *(_number(value * 1000) for value in taken.values()), f"{slope(taken):.2f}"]
            for name, taken in times.items()
        ]
        parts.append(_table(header, rows))
    return "\n\n".join(parts)


def _steps(results: "Results") -> str:
    header = ["student", "step with CE, ms", "TPKD / CE", "KD / CE", "share of CE", "share of KD", "share of TPKD"]
    rows = [
        [
            name,
            _number(times["CE"] * 1000),
            f"**{times['TPKD / CE']:.3f}**",
            f"{times['KD / CE']:.3f}",
            *(f"{100 * times[f'{loss} alone'] / times[loss]:.2f} %" for loss in ("CE", "KD", "TPKD")),
        ]
        for name, times in results.steps.items()
    ]
    return (
        "## A training step\n\nForward, loss, backward and SGD, teacher logits at hand; ratios are medians over pairs "
        f"of neighbouring steps.\n\n{_table(header, rows)}"
    )


def _linear(results: "Results") -> str:
    linear = results.linear
    peaks = ", ".join(f"{value / 1e6:.1f} MB at {rows:,} rows" for rows, value in linear.bytes_beyond.items())
    return (
        "## A linear head over 50,000 classes (D = 256)\n\n"
        f"`linear_tpkd_loss` holds beyond inputs and gradients {peaks}. At 1,024 rows the dense loss holds "
        f"{linear.dense_bytes_beyond / 1e6:.1f} MB and takes {linear.dense_seconds:.2f} s, the chunked one "
        f"{linear.chunked_seconds:.2f} s ({linear.chunked_seconds / linear.dense_seconds:.2f} ×)."
    )


def _gpu_counts(record: Path = GPU_COUNTS) -> list[str]:
    """Nothing where nothing was counted."""
    if not record.exists():
        return []
    counted = json.loads(record.read_text())
    moved = [
        [f"{n:,}", dtype, f"{found:,}", f"{least:,}", f"{found / least:.3f}"]
        for n, dtype, found, least in counted["bytes"]
    ]
    registers = [[what, target, *map(str, numbers)] for what, target, *numbers in counted["registers"]]
    return [
        "## The GPU kernel, counted\n\nThere was no GPU to time it on. These are counts, not times (`make "
        "bench-gpu-counts`): bytes of all loads and stores of a row in Triton's interpreter, over the least possible "
        "(both networks read once, or twice above 16,384 classes, and one gradient written); and what each program "
        "takes on four architectures at the fixed sizes, as the compilers report it, for float32 logits.",
        _table(["classes", "dtype", "bytes moved per row", "least possible", "ratio"], moved),
        _table(["program", "target", "registers per thread", "shared bytes", "spilled"], registers),
    ]


def _criteria(criteria: list[Criterion]) -> str:
    rows = [
        [c.name, f"{_number(c.limit)}{c.unit}", f"{_number(c.found)}{c.unit}", "met" if c.met else "**not met**"]
        for c in criteria
    ]
    return f"## Every promise\n\n{_table(['promise', 'limit', 'measured', ''], rows)}"


def _plot(results: "Results", path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    chosen = [result for result in results.cases if result.case.dtype == "float32"]
    kinds = sorted({result.case.kind for result in chosen})
    shapes = sorted({(result.case.num_classes, result.case.rows) for result in chosen})
    for index, kind in enumerate(kinds):
        heights = [
            ratio(result, "TPKD", "KD")
            for num_classes, _ in shapes
            for result in chosen
            if result.case.kind == kind and result.case.num_classes == num_classes
        ]
        left.bar([i + 0.27 * (index - 1) for i in range(len(shapes))], heights, width=0.25, label=kind)
    left.axhline(1.0, color="black", linewidth=0.8)
    left.set_xticks(range(len(shapes)), [f"({rows}, {num_classes})" for num_classes, rows in shapes])
    left.set(xlabel="(N, K)", ylabel="time, TPKD / KD", title="Forward and backward pass, float32")
    left.legend(frameon=False)
    for name, times in results.growth_in_classes.items():
        right.loglog(list(times), [value * 1000 for value in times.values()], marker="o", label=name)
    right.set(xlabel="number of classes K", ylabel="milliseconds, 16 rows", title="Growth with the number of classes")
    right.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
