"""`tpkd train`: a configuration in, a trained student and its result out."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpkd.cli.console import say
from tpkd.cli.interruption import interruptible
from tpkd.cli.options import Overrides, config_errors, read_config, read_tokens_config, reads_tokens
from tpkd.cli.progress import Display, display
from tpkd.errors import extra
from tpkd.termination import TerminatedError

if TYPE_CHECKING:
    from tpkd.training.directory import RunResult
    from tpkd.training.loop import StepReport


def train(
    config: Annotated[Path, typer.Argument(help="A YAML file; see configs/.")],
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue, and refuse to start from nothing.")] = False,
) -> None:
    """Train a student; the same command again continues where it ended, bit for bit.

    Under `accelerate launch -m tpkd train …` or torchrun it runs on many devices and machines.

    Example: tpkd train configs/digits.yaml objective=kd seed=43 optimizer.learning_rate=0.1
    """
    if reads_tokens(config):
        _train_tokens(config, overrides, resume)
        return
    with extra("train"):
        from tpkd.training.loop import train as run_training
        from tpkd.training.run import end_processes
        from tpkd.training.step import NonFiniteError
    with config_errors(config):
        loaded = read_config(config, overrides)
        with interruptible(lambda: _outlook(Path(loaded.directory))), display() as show:
            try:
                result = run_training(loaded, resume=resume, on_step=partial(_advance, show))
                end_processes()
            except TerminatedError:
                end_processes()
                raise
            except NonFiniteError as error:
                say(f"tpkd: {error}", error=True)
                raise typer.Exit(1) from error
    if os.environ.get("RANK", "0") != "0":  # under a launcher only the first process prints
        return
    say(_told(result), f"run: {loaded.directory}")


def _train_tokens(config: Path, overrides: Overrides, resume: bool) -> None:
    """Train a language model from its teacher's cache."""
    from tpkd.tokens.training import train_tokens

    with config_errors(config):
        loaded = read_tokens_config(config, overrides)
        with interruptible(), display() as show:

            def advance(step: int, steps: int, loss: float) -> None:
                show.update("training", step, steps, f"step {step}/{steps}, loss {loss:.4f}", parts=20)

            result = train_tokens(loaded, resume=resume, on_step=advance)
    found = "" if result.final is None else f", perplexity {result.final.perplexity:.2f} on held-out text"
    say(f"{result.name}, seed {result.seed}: {result.steps} steps{found}", f"run: {loaded.directory}")


def _told(result: "RunResult") -> str:
    which = f", {result.selected}" if result.selected else f" after epoch {result.epochs}"
    return f"{result.objective}, seed {result.seed}: {result.accuracies}{which}"


def _advance(show: Display, report: "StepReport") -> None:
    said = f"epoch {report.epoch}, loss {report.loss:.4f}"
    line = f"step {report.step}/{report.num_steps}, {said}"
    show.update("training", report.step, report.num_steps, line, parts=10, title=said)


def _outlook(directory: Path) -> str:
    from tpkd.training.directory import checkpoints_of

    steps = checkpoints_of(directory).steps()
    if not steps:
        return "there is no checkpoint yet, the same command starts anew"
    return f"the same command continues from step {steps[-1]}"
