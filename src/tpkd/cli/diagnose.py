"""`tpkd diagnose`: students, a teacher and labels in; a table, a reading, and JSON and HTML out."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from tpkd.arrays import ArrayFile
from tpkd.cli.console import say
from tpkd.cli.options import need_report
from tpkd.cli.progress import display
from tpkd.diagnosis.file_names import short_names
from tpkd.diagnosis.inputs import DiagnosisInputs, open_inputs
from tpkd.diagnosis.run import check_outputs, diagnose_files, write_text
from tpkd.diagnosis.terminal import diagnosis_reading, diagnosis_table


def diagnose(
    students: Annotated[list[Path], typer.Argument(help="Logits of one student each, (examples, classes).")],
    teacher: Annotated[Path, typer.Option(help="Logits of the teacher, same shape, or the directory of its cache.")],
    labels: Annotated[Path, typer.Option(help="Integer class labels, one per example.")],
    json: Annotated[Path | None, typer.Option(help="Write every number here.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page for people here (needs the extra `report`).")] = None,
    class_names: Annotated[
        Path | None,
        typer.Option(help="Names of the classes: one per line, a JSON list, a config.json, or a .safetensors file."),
    ] = None,
    ids: Annotated[
        Path | None,
        typer.Option(
            help="Names of the examples, or sample (and view) ids of a teacher cache: lines, JSON list, array."
        ),
    ] = None,
    log_probabilities: Annotated[
        bool,
        typer.Option("--log-probabilities", help="The files hold log-probabilities; rows are checked to sum to 1."),
    ] = False,
) -> None:
    """What can this teacher still teach these students, and at what price?

    Files are .npy, .npz or .safetensors of any length; in a file of several arrays the one named `logits` (or `labels`)
    is taken. Several students, for example one per epoch, give a trend. Rows are counted from 0.

    Example: tpkd diagnose student.npy --teacher teacher.npy --labels labels.npy --html page.html --json numbers.json
    """
    outputs = [path for path in (json, html) if path is not None]
    check_outputs(outputs, [path for path in (*students, teacher, labels, class_names, ids) if path is not None])
    if html is not None:
        need_report()
    inputs = open_inputs(
        students, teacher, labels, class_names=class_names, ids=ids, log_probabilities=log_probabilities
    )
    with _progress(inputs) as advance:
        record = diagnose_files(inputs, advance=advance)
    if html is not None:
        from tpkd.diagnosis.page import diagnosis_page

        write_text(html, diagnosis_page(record))
    if json is not None:
        write_text(json, record.to_json())
    console = Console()
    console.print(diagnosis_table(record))
    for sentence in diagnosis_reading(record):
        console.print(escape(sentence), highlight=False, soft_wrap=not console.is_terminal)
    say(*(f"written: {path}" for path in outputs))


@contextmanager
def _progress(inputs: DiagnosisInputs) -> Iterator[Callable[[ArrayFile, int], None]]:
    """One bar per student on a terminal, one line per student in a log."""
    paths = [student.path for student in inputs.students]
    names = dict(zip(paths, short_names([str(path) for path in paths]), strict=True))
    done: Counter[Path] = Counter()
    with display() as show:

        def advance(student: ArrayFile, rows: int) -> None:
            done[student.path] += rows
            line = f"diagnosed {student.path}: {inputs.examples:,} examples"
            show.update(names[student.path], done[student.path], inputs.examples, line)

        yield advance
