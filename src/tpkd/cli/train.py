"""`tpkd train`: a configuration in, a trained student and its result out."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tpkd.cli.interruption import interruptible
from tpkd.errors import InputError, extra
from tpkd.termination import TerminatedError

if TYPE_CHECKING:
    from tpkd.config.loading import Override
    from tpkd.training.loop import OnStep, StepReport

_LINE_EVERY = 0.1
"""Share of a run between two lines of a log."""


def train(
    config: Annotated[Path, typer.Argument(help="A YAML file; see configs/.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, dotted keys.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue, and refuse to start from nothing.")] = False,
) -> None:
    """Train a student; the same command again continues where it ended, bit for bit.

    Under `accelerate launch -m tpkd train …` or torchrun it runs on many devices and machines.

    Example: tpkd train configs/digits.yaml objective=kd seed=43 optimizer.learning_rate=0.1
    """
    with extra("train"):
        from tpkd.training.loop import train as run_training
        from tpkd.training.run import end_processes
        from tpkd.training.step import NonFiniteError
    console = Console()
    with config_errors(config):
        loaded = read_config(config, overrides)
        with interruptible(lambda: _outlook(Path(loaded.directory))), _progress() as on_step:
            try:
                result = run_training(loaded, resume=resume, on_step=on_step)
                end_processes()
            except TerminatedError:
                end_processes()
                raise
            except NonFiniteError as error:
                Console(stderr=True).print(f"tpkd: {error}", highlight=False, markup=False, soft_wrap=True)
                raise typer.Exit(1) from error
    if os.environ.get("RANK", "0") != "0":  # of the processes of a launcher the first one speaks
        return
    accuracy = f"{result.objective}, seed {result.seed}: {result.accuracy:.2%} of {result.test_samples} test samples"
    for line in (f"{accuracy} after epoch {result.epochs}", f"run: {loaded.directory}"):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _outlook(directory: Path) -> str:
    from tpkd.training.directory import checkpoints_of

    steps = checkpoints_of(directory).steps()
    if not steps:
        return "there is no checkpoint yet, the same command starts anew"
    return f"the same command continues from step {steps[-1]}"


def read_config(path: Path, overrides: "Sequence[Override] | None") -> Any:
    """The configuration of a verb, its libraries loaded only now."""
    with extra("train"):
        from tpkd.config.loading import load_config
    return load_config(path, overrides or ())


@contextmanager
def config_errors(path: Path) -> Iterator[None]:
    """Name the file in what is wrong with a value of it."""
    with extra("train"):
        from tpkd.config.loading import ConfigError
    try:
        yield
    except ConfigError as error:
        raise InputError(f"{path}: {error}") from error


@contextmanager
def _progress() -> "Iterator[OnStep]":
    """A bar on a terminal, a line now and then in a log."""
    console = Console(stderr=True)
    if not console.is_terminal:

        def announce(report: "StepReport") -> None:
            interval = max(1, round(report.num_steps * _LINE_EVERY))
            if report.step % interval == 0 or report.step == report.num_steps:
                line = f"step {report.step}/{report.num_steps}, epoch {report.epoch}, loss {report.loss:.4f}"
                console.print(line, highlight=False)

        yield announce
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("training", total=None)
        yield lambda report: progress.update(
            task,
            total=report.num_steps,
            completed=report.step,
            description=f"epoch {report.epoch}, loss {report.loss:.4f}",
        )
