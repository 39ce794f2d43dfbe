"""`tpkd demo`: all experiments on scikit-learn's digits, with a report."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tpkd.cli.compare import comparison_table
from tpkd.cli.console import say
from tpkd.cli.executors import cores
from tpkd.cli.interruption import interruptible
from tpkd.cli.progress import grid_progress
from tpkd.errors import extra
from tpkd.report.numbers import percent


def demo(
    out: Annotated[Path, typer.Option(help="Output directory.")] = Path("demo-output"),
    jobs: Annotated[int, typer.Option(help="Runs in parallel; 0 = one per core.", min=0)] = 0,
) -> None:
    """Train a teacher and students with every objective on scikit-learn's digits, study them, and write the report.

    No download, a few minutes on two cores. Run it again to continue after an interruption.

    Example: tpkd demo --out my-demo
    """
    with extra("report,train"):
        import jinja2  # noqa: F401  (before the work, not after it)
        import matplotlib  # noqa: F401

        from tpkd.demo.run import run_demo
    with interruptible(), grid_progress() as watcher:
        result = run_demo(out, processes=jobs or cores(), watcher=watcher)
    Console().print(comparison_table(result.comparison))
    failed = [f"{cell.name} failed: {cell.problem}" for cell in result.comparison.cells if cell.problem]
    failed += [f"study {name} failed: {problem}" for name, problem in result.failed_studies.items()]
    if result.violations:
        failed.append(f"the studies saw {result.violations} cases that the theory excludes")
    say(
        *failed,
        f"teacher: {percent(result.teacher.accuracy)} % of {result.teacher.test_samples} held-out digits",
        "A small data set, settings tried on it: this shows everything at work, not which method is better.",
        *([f"diagnosis of three students: {result.diagnosis}"] if result.diagnosis else []),
        *([f"their examples, one by one: {result.audit}"] if result.audit else []),
        f"report: {result.report}",
    )
    if failed:
        raise typer.Exit(1)
