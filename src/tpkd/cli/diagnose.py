"""`tpkd diagnose`: students, a teacher and labels in; a table, a reading, and JSON and HTML out."""

import math
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
from tpkd.cli.options import choose_form, need_report
from tpkd.cli.progress import display
from tpkd.diagnosis.file_names import short_names
from tpkd.diagnosis.inputs import DiagnosisInputs, open_inputs
from tpkd.diagnosis.marks import in_ascii
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.diagnosis.run import check_outputs, diagnose_files, write_text
from tpkd.diagnosis.terminal import diagnosis_reading, diagnosis_table
from tpkd.diagnosis.tokens.reading import CAVEAT as TOKENS_CAVEAT
from tpkd.diagnosis.tokens.reading import read_tokens
from tpkd.diagnosis.tokens.terminal import tokens_tables
from tpkd.errors import InputError, extra
from tpkd.geometry.constants import PAPER_BETA

Students = Annotated[list[Path], typer.Argument(help="Logits of one student each, (examples, classes).")]
Teacher = Annotated[
    Path,
    typer.Option(
        help="Logits of the teacher, same shape; its top classes as log_probs and indices; or its cache directory."
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(help="Class numbers or names, -100 to leave a row out; or probabilities (examples, classes)."),
]
Json = Annotated[Path | None, typer.Option(help="Write every number here.")]
Html = Annotated[Path | None, typer.Option(help="Write a page for people here (needs the extra `report`).")]
ClassNames = Annotated[
    Path | None,
    typer.Option(help="Names of the classes: one per line, a JSON list, a config.json, or a .safetensors file."),
]
Ids = Annotated[
    Path | None,
    typer.Option(help="Names of the examples, or sample (and view) ids of a teacher cache: lines, JSON list, array."),
]
LogProbabilities = Annotated[
    bool,
    typer.Option("--log-probabilities", help="The files hold log-probabilities; rows are checked to sum to 1."),
]
Probabilities = Annotated[
    bool,
    typer.Option("--probabilities", help="The files hold probabilities; rows are checked, and logarithms taken."),
]
LabelColumn = Annotated[str | None, typer.Option(help="Column or array of the labels, where several could be meant.")]
Beta = Annotated[float, typer.Option(help="Of the step: decides about the update cosine alone.")]
Temperature = Annotated[
    float, typer.Option(help="Of the step: decides about compensation, retention and update cosine alone.")
]
Tokens = Annotated[
    bool,
    typer.Option(
        "--tokens",
        help="The student is a causal language model, a transformers folder or a .gguf file, and the teacher is a "
        "token cache, whose text the student reads; see docs/tokens.md.",
    ),
]
Blocks = Annotated[
    int | None, typer.Option(help="With --tokens: how many blocks of the cache to read; default: all.", min=1)
]


def diagnose(
    context: typer.Context,
    students: Students,
    teacher: Teacher,
    labels: Labels = None,
    json: Json = None,
    html: Html = None,
    class_names: ClassNames = None,
    ids: Ids = None,
    log_probabilities: LogProbabilities = False,
    probabilities: Probabilities = False,
    label_column: LabelColumn = None,
    beta: Beta = PAPER_BETA,
    temperature: Temperature = 1.0,
    tokens: Tokens = False,
    blocks: Blocks = None,
) -> None:
    """What can this teacher still teach these students, and at what price?

    Files are .npy, .npz, .safetensors, .pt, .pth, .csv, .tsv or .parquet of any length; labels may also be lines of
    .txt. In a file of several arrays the one named `logits` (or `labels`) is taken, in a table a column per class.
    Several students, for example one per epoch, give a trend. Rows are counted from 0.

    A teacher that kept only its top classes is a file with the arrays `log_probs` and `indices` (examples, kept
    classes) and optionally `label_log_probs` and `rest_log_probs` (examples), or a truncated cache. What is said about
    it are bounds, marked as such.

    Example: tpkd diagnose student.npy --teacher teacher.npy --labels labels.npy --html page.html --json numbers.json

    Example: tpkd diagnose runs/student --teacher runs/token-cache --tokens --html page.html
    """
    if tokens:
        _refuse_beside_tokens(context)
        _diagnose_tokens(students, teacher, blocks, {"json": json, "html": html})
        return
    if labels is None:
        raise InputError("--labels: missing: a diagnosis needs the right class of every example")
    if blocks is not None:
        raise InputError("--blocks: expected --tokens beside it, found none")
    _check_step(beta, temperature)
    form = choose_form(probabilities=probabilities, log_probabilities=log_probabilities)
    outputs = [path for path in (json, html) if path is not None]
    check_outputs(outputs, [path for path in (*students, teacher, labels, class_names, ids) if path is not None])
    if html is not None:
        need_report()
    inputs = open_inputs(
        students, teacher, labels, class_names=class_names, ids=ids, form=form, label_column=label_column
    )
    with _progress(inputs) as advance:
        record = diagnose_files(inputs, beta=beta, temperature=temperature, advance=advance)
    if html is not None:
        from tpkd.diagnosis.page import diagnosis_page

        write_text(html, diagnosis_page(record))
    if json is not None:
        write_text(json, record.to_json())
    _show(record)
    say(*(f"written: {path}" for path in outputs))


_LABELS = "whose labels are the tokens of the cache"
_STEP = "whose numbers do not depend on the step"
_FORM = "whose student is a network and not a file of outputs"
_BESIDE_TOKENS = {
    "labels": _LABELS,
    "ids": _LABELS,
    "class_names": _LABELS,
    "label_column": _LABELS,
    "beta": _STEP,
    "temperature": _STEP,
    "probabilities": _FORM,
    "log_probabilities": _FORM,
}
"""Options that --tokens would ignore, and why."""


def _refuse_beside_tokens(context: typer.Context) -> None:
    for name, reason in _BESIDE_TOKENS.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":  # its default value counts too where it was given
            raise InputError(f"--{name.replace('_', '-')}: expected none beside --tokens, {reason}")


def _diagnose_tokens(
    students: list[Path],
    teacher: Path,
    blocks: int | None,
    outputs: dict[str, Path | None],
) -> None:
    """Diagnose a language model."""
    if len(students) != 1:
        raise InputError(f"--tokens: expected one student, found {len(students)}")
    written = [path for path in outputs.values() if path is not None]
    check_outputs(written, [students[0], teacher])
    if outputs["html"] is not None:
        need_report()
    with extra("text"):
        from tpkd.cli.token_student import diagnose_language_model
    with display() as show:

        def advance(done: int, total: int) -> None:
            show.update("blocks", done, total, f"{done} of {total} blocks", parts=10)

        record = diagnose_language_model(students[0], teacher, blocks, advance)
    if outputs["html"] is not None:
        from tpkd.diagnosis.tokens.page import tokens_page

        write_text(outputs["html"], tokens_page(record))
    if outputs["json"] is not None:
        write_text(outputs["json"], record.to_json())
    console = Console()
    for table in tokens_tables(record):
        console.print(table)
    for sentence in (*read_tokens(record), TOKENS_CAVEAT):
        console.print(escape(sentence), highlight=False, soft_wrap=not console.is_terminal)
    say(*(f"written: {path}" for path in written))


def _show(record: DiagnosisRecord) -> None:
    console = Console()
    ascii_only = not console.encoding.startswith("utf")
    console.print(diagnosis_table(record, ascii_only=ascii_only))
    for sentence in diagnosis_reading(record):
        text = escape(in_ascii(sentence) if ascii_only else sentence)
        console.print(text, highlight=False, soft_wrap=not console.is_terminal)


def _check_step(beta: float, temperature: float) -> None:
    if not 0 <= beta < math.inf:
        raise InputError(f"--beta: expected a nonnegative finite number, found {beta:g}")
    if not 0 < temperature < math.inf:
        raise InputError(f"--temperature: expected a positive finite number, found {temperature:g}")


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
