"""`tpkd check-loss`: checks any distillation loss and reports what is wrong with it and how to reproduce it."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tpkd.check_loss.examination import check_loss as examine
from tpkd.check_loss.meaning import DIVERGENCES
from tpkd.check_loss.subject import CLAIMED_REDUCTIONS, Claims
from tpkd.check_loss.target import FORMS, find_loss
from tpkd.check_loss.terminal import loss_reading, loss_table
from tpkd.cli.console import say
from tpkd.cli.options import check_name
from tpkd.diagnosis.run import check_outputs, write_text

_CALL, _CLAIMS = "How to call it", "What you say about it: a claim is checked"


def _call(metavar: str, help: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, rich_help_panel=_CALL, help=help)


def _claim(metavar: str | None, help: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, rich_help_panel=_CLAIMS, help=help)


_ARGUMENT = (
    "Which argument is the student, teacher, labels, temperature, reduction, ignore_index or num_items, "
    "where its name does not tell; the name `none` leaves a role out."
)
_FORM = f"What it takes: {', '.join(FORMS)} (softened by T); not given, what the name says."
_OUTPUT = "The loss in what it returns: a key (loss), an index (0) or an attribute (.loss)."
_REDUCTION = "mean, sum or none over samples, or elements: a mean over classes too."
_T_SQUARED = "Whether the loss itself multiplies by the temperature squared."
_IGNORE_INDEX = "The label that leaves a position out; not given, what its signature says."
_DIVERGENCE = f"What its teacher's term is: {', '.join(DIVERGENCES)}."


def check_loss(
    loss: Annotated[str, typer.Argument(help="package.module:function, a class to instantiate, or an instance.")],
    arguments: Annotated[list[str] | None, _call("ROLE=NAME", _ARGUMENT, "--argument")] = None,
    settings: Annotated[list[str] | None, _call("KEY=VALUE", "Any other argument.", "--set")] = None,
    student: Annotated[str | None, _call("FORM", _FORM)] = None,
    teacher: Annotated[str | None, _call("FORM", _FORM)] = None,
    output: Annotated[str | None, _call("KEY", _OUTPUT)] = None,
    reduction: Annotated[str | None, _claim("NAME", _REDUCTION)] = None,
    t_squared: Annotated[bool, _claim(None, _T_SQUARED)] = True,
    ignore_index: Annotated[int | None, _claim("LABEL", _IGNORE_INDEX)] = None,
    divergence: Annotated[str | None, _claim("NAME", _DIVERGENCE)] = None,
    dense: Annotated[bool, _claim(None, "It takes several positions per sample.", "--dense")] = False,
    batchwise: Annotated[bool, _claim(None, "By design, it is not a sum over samples.", "--batchwise")] = False,
    prescribed: Annotated[
        bool, _claim(None, "By design, its gradient is not the derivative of its value.", "--prescribed")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write every finding here.")] = None,
) -> None:
    """Is this distillation loss what it should be? Anybody's, found by name.

    Arguments are recognised by their usual names (student_logits, logits_S,
    preds_T, gt_labels, T, tau, ...), then by the usual order: student, teacher,
    labels. For a loss that takes something else, check a function of three
    tensors around it. Modules are looked for in the current directory first;
    importing one runs its code.

    `fail` is for what no loss should get wrong: numbers that are not finite up
    to a lead of 1,000 (500 in float16), a gradient that is not the derivative of
    the value, something left beside the label term where student and teacher
    agree, micro-batches that do not add up, inputs overwritten, a promise of its
    own `reduction` or `ignore_index` not kept. And for two known traps: a
    teacher's term divided by the number of classes, and a temperature without
    T squared; say `--reduction elements` or `--no-t-squared` where that is meant.

    `note` is for choices to know of: a sum, matching of logits, a gradient to
    the teacher, labels of -100 that count although nobody promised otherwise. A
    claim of yours turns them into pass or fail. A loss that refuses a second
    derivative because its gradient is "not the derivative" is believed.

    Every failure comes with a command that shows it. Exit 0: no failure; 1: at
    least one; 2: no such loss, or it does not tell how to call it.

    Example: tpkd check-loss tpkd:kd_loss --set temperature=2.0 --json kd.json

    Example: tpkd check-loss torch.nn.functional:kl_div --argument student=input
    --argument teacher=target --student log-probabilities --teacher probabilities
    """
    check_name("--student", student, FORMS)
    check_name("--teacher", teacher, FORMS)
    check_name("--reduction", reduction, CLAIMED_REDUCTIONS)
    check_name("--divergence", divergence, DIVERGENCES)
    outputs = [] if json is None else [json]
    check_outputs(outputs, [])
    sys.path.insert(0, os.getcwd())  # as `python -c` does, so that a reproduction command finds the same module
    found = find_loss(
        loss,
        arguments=arguments or (),
        settings=settings or (),
        output=output,
        forms={role: form for role, form in (("student", student), ("teacher", teacher)) if form is not None},
    )
    record = examine(found, Claims(reduction, t_squared, ignore_index, divergence, dense, batchwise, prescribed))
    for path in outputs:
        write_text(path, record.to_json())
    Console().print(loss_table(record))
    say(*loss_reading(record), *(f"written: {path}" for path in outputs))
    if record.failures:
        raise typer.Exit(1)
