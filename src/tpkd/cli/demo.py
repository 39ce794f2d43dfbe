"""`tpkd demo`: a teacher and three students on scikit-learn's digits, and a page about what they learned."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from tpkd.files import extra
from tpkd.records import DiagnosisRecord
from tpkd.report.numbers import nats, share
from tpkd.studies.demo import METHODS, DemoResult, OnEpoch, demo_files, run_demo, write_logits
from tpkd.studies.diagnose import diagnose_files, write_text
from tpkd.studies.diagnose_inputs import open_inputs


def demo(out: Annotated[Path, typer.Option(help="Where the logits and the page go.")] = Path("demo-output")) -> None:
    """Distil three students on scikit-learn's digits and look at what they learned (no download, under two minutes).

    Example: tpkd demo --out my-demo
    """
    files = demo_files(out)
    with extra("report"):
        from tpkd.report.page import diagnosis_page
    with _progress() as on_epoch:
        result = run_demo(on_epoch)
    write_logits(result, files)
    inputs = open_inputs(list(files.students), files.teacher, files.labels)
    record = diagnose_files(inputs)
    write_text(files.page, diagnosis_page(record))
    console = Console()
    console.print(_table(result, record))
    students = " ".join(str(path) for path in files.students)
    for line in (
        f"teacher: {share(result.accuracy(result.teacher_logits))} of {len(result.labels)} held-out digits",
        "One seed on a small data set: it shows the tool at work, not which method is better.",
        f"page: {files.page}",
        f"again from the files: tpkd diagnose {students} --teacher {files.teacher} --labels {files.labels}",
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _table(result: DemoResult, record: DiagnosisRecord) -> Table:
    table = Table(title="Students on held-out digits; conditional KL left to learn in nats")
    for heading in ("student", "accuracy", "imitation blocked", "left to learn", "where blocked"):
        table.add_column(heading, justify="left" if heading == "student" else "right")
    for (method, logits), student in zip(result.student_logits.items(), record.students, strict=True):
        left, left_blocked = student.all["conditional_loss"], student.blocked["conditional_loss"]
        accuracy = share(result.accuracy(logits))
        table.add_row(method, accuracy, share(student.blocked_share), nats(left), nats(left_blocked))
    return table


@contextmanager
def _progress() -> Iterator[OnEpoch]:
    """A bar for each network on a terminal, one line each in a log."""
    console = Console(stderr=True)
    if not console.is_terminal:

        def announce(name: str, epoch: int, epochs: int) -> None:
            if epoch == epochs:
                console.print(f"trained {name}: {epochs} epochs", highlight=False)

        yield announce
        return
    columns = (TextColumn("{task.description:<8}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"))
    with Progress(*columns, console=console) as progress:
        tasks = {name: progress.add_task(name, total=None) for name in ("teacher", *METHODS)}
        yield lambda name, epoch, epochs: progress.update(tasks[name], total=epochs, completed=epoch)
