"""`tpkd export`: a trained student to a folder for another program."""

from pathlib import Path
from typing import Annotated

import typer

from tpkd.cli.console import say
from tpkd.cli.interruption import interruptible
from tpkd.errors import extra


def export(
    run: Annotated[Path, typer.Argument(help="What `tpkd train` made.")],
    out: Annotated[Path, typer.Argument(help="A new folder.")],
    format: Annotated[str, typer.Option(help="safetensors, onnx, or hf (transformers and timm).")],
) -> None:
    """Write a student with its class names, preprocessing and model card for use elsewhere.

    safetensors: a folder for tpkd.load_student. onnx: one graph with a dynamic batch (needs the extra `export`). hf: a
    folder that transformers or timm loads. What another library computes is compared before anything is published; a
    folder that exists is never replaced. Exit 1 if the comparison fails.

    Example: tpkd export runs/digits/tpkd-42 digits-onnx --format onnx
    """
    with extra("train"):
        from tpkd.student.checks import MismatchError
        from tpkd.student.exporting import export_student
    with interruptible(lambda: "nothing was written, the same command starts anew"):
        try:
            notes = export_student(run, out, format)
        except MismatchError as error:
            say(f"tpkd: {error}", error=True)
            raise typer.Exit(1) from error
    say(*notes, f"written: {out}")
