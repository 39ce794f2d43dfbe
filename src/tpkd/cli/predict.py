"""`tpkd predict`: a trained student and data in; classes, probabilities and margins out."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpkd.cli.console import say
from tpkd.cli.interruption import interruptible
from tpkd.cli.options import check_name
from tpkd.cli.progress import counted
from tpkd.errors import extra

if TYPE_CHECKING:
    from tpkd.student.prediction import PredictedBatch

SHOWN = 10
"""Predictions that are printed where no file is asked for."""


def predict(
    run: Annotated[Path, typer.Argument(help="What `tpkd train` made, or a folder of `tpkd export`.")],
    data: Annotated[str, typer.Argument(help="What data.name takes (digits, folder:PATH, csv:PATH, …), or a file.")],
    out: Annotated[Path | None, typer.Option(help="Write every prediction here: .csv, .npz or .parquet.")] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Part of the data: train, test or validation. Default: test, or all of a single table."),
    ] = None,
    unlabelled: Annotated[bool, typer.Option("--unlabelled", help="The data have no labels; read none.")] = False,
    batch_size: Annotated[int, typer.Option(help="Samples per forward pass.", min=1)] = 256,
    workers: Annotated[int, typer.Option(help="Processes that prepare inputs.", min=0)] = 0,
) -> None:
    """Predict the classes of data with a trained student; its teacher is not needed.

    DATA may also be a file with one text per line. Without --out the first predictions are printed. A file that exists
    is never replaced.

    Example: tpkd predict runs/digits/tpkd-42 digits --out predictions.csv
    """
    with extra("train"):
        from tpkd.student.loading import load_student
        from tpkd.student.outputs import check_output, open_output
        from tpkd.student.prediction import LinesOfText, open_data, predict_batches
    check_name("--split", split, ("train", "test", "validation"))
    if out is not None:
        check_output(out)
    student = load_student(run)
    source = open_data(student, data, split, unlabelled=unlabelled)
    total = 0 if isinstance(source, LinesOfText) else len(source)
    labelled = not isinstance(source, LinesOfText) and source.labelled
    done = correct = 0
    with ExitStack() as stack:
        stack.enter_context(interruptible(lambda: "nothing was written, the same command starts anew"))
        advance = stack.enter_context(counted("predicted", parts=10))
        add = None if out is None else stack.enter_context(open_output(out, student.class_names, labelled=labelled))
        for batch in predict_batches(student, source, batch_size=batch_size, workers=workers):
            if add is not None:
                add(batch)
            elif done < SHOWN:
                say(*_lines(batch, student.class_names, SHOWN - done))
            done += len(batch.found)
            correct += 0 if batch.correct is None else int(batch.correct.sum())
            advance(done, total)
    if out is None and done > SHOWN:
        say(f"… and {done - SHOWN} more; --out FILE writes all of them")
    accuracy = f", {correct / done:.2%} correct" if labelled else ""
    say(f"{done} samples{accuracy}", *([f"written: {out}"] if out is not None else []))


def _lines(batch: "PredictedBatch", class_names: tuple[str, ...], most: int) -> list[str]:
    found, lines = batch.found, []
    for row, name in enumerate(found.labels[:most]):
        label = "" if batch.labels is None else f", label {class_names[int(batch.labels[row])]}"
        probability, margin = float(found.probabilities[row].max()), float(found.margins[row])
        lines.append(f"{int(batch.sample_ids[row])}: {name} ({probability:.1%}, margin {margin:.2f}{label})")
    return lines
