"""The training loop, from a configuration to a result, read from top to bottom."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpkd.config import RunConfig
from tpkd.data import load_batches
from tpkd.files import InputError
from tpkd.models import weights_fingerprint
from tpkd.training import directory as run_directory
from tpkd.training import materials
from tpkd.training.checkpoint import Checkpoints
from tpkd.training.directory import SNAPSHOTS_NAME, STUDENT_NAME, TEST_LOGITS_NAME, RunResult, read_result
from tpkd.training.evaluation import Evaluation, evaluate
from tpkd.training.log import RunLog
from tpkd.training.optimizer import set_rate
from tpkd.training.run import Run, assemble, check_names, start_accelerator
from tpkd.training.schedule import rate_factor
from tpkd.training.state import Progress, capture, restore
from tpkd.training.step import StepOutcome, take_step


@dataclass(frozen=True)
class StepReport:
    """What somebody who watches a run is told after each step."""

    step: int
    num_steps: int
    epoch: int
    loss: float


OnStep = Callable[[StepReport], None]


def train(
    config: RunConfig, directory: str | Path | None = None, *, resume: bool = False, on_step: OnStep | None = None
) -> RunResult:
    """Train a student; the same call again continues where the last one ended, bit for bit.

    Args:
        config: the run.
        directory: where it is kept, by default what the configuration says.
        resume: refuse to start from nothing.
        on_step: called by the first process after each step.

    Returns:
        The result; of a run that is finished already, without computing anything.

    Raises:
        InputError: the configuration, a file it names, or the directory is not as it must be.
        NonFiniteError: a loss was NaN or infinite; the step was not taken.
    """
    check_names(config)
    directory = Path(directory or config.directory)
    accelerator = start_accelerator(config)
    with run_directory.held(directory, main=accelerator.is_main_process):
        accelerator.wait_for_everyone()
        if resume and not run_directory.has_progress(directory):
            raise InputError(f"{directory}: expected a checkpoint to continue from, found none")
        abandoned = run_directory.bind(directory, config) if accelerator.is_main_process else None
        finished = read_result(directory)
        if finished is not None:
            return finished
        checkpoints = run_directory.checkpoints_of(directory, keep=config.checkpoints.keep)
        if accelerator.is_main_process:
            checkpoints.sweep()
        run = assemble(config, accelerator, directory)
        return _train(run, checkpoints, directory, on_step, abandoned)


def _train(
    run: Run, checkpoints: Checkpoints, directory: Path, on_step: OnStep | None, abandoned: Path | None
) -> RunResult:
    config, main = run.config, run.accelerator.is_main_process
    saved = checkpoints.load()
    progress = Progress() if saved is None else restore(run, saved)
    before, started = progress.seconds, time.monotonic()
    log = RunLog(
        directory, offset=progress.metrics_bytes, step=progress.step, tensorboard=config.tensorboard, writes=main
    )
    with log:
        if abandoned is not None:
            log.note(f"a run of another configuration, without a checkpoint, was moved to {abandoned.name}")
        _note_start(run, progress, directory, log)
        batches = load_batches(run.batches, start=progress.step, workers=config.workers)
        for step, samples in enumerate(batches, start=progress.step + 1):
            rate = config.optimizer.learning_rate * rate_factor(config.schedule, step - 1, run.num_steps)
            set_rate(run.optimizer, rate)
            look = run.can_look and config.monitor_every > 0 and step % config.monitor_every == 0
            outcome = take_step(run, step, samples, look=look)

            progress.step, progress.seconds = step, before + time.monotonic() - started
            progress.skipped_steps += outcome.skipped
            _log_step(run, progress, log, outcome, rate)
            for epoch in run.epochs_ended(step):
                _end_epoch(run, progress, log, directory, epoch)
            if step % config.checkpoints.every == 0 or step == run.num_steps:
                progress.metrics_bytes = log.sync()
                groups, values = capture(run, progress)
                if main:
                    checkpoints.save(step, groups, values)
            if on_step is not None and main:
                on_step(StepReport(step, run.num_steps, run.epoch_of(step), outcome.loss))
        return _finish(run, progress, log, directory)


def _note_start(run: Run, progress: Progress, directory: Path, log: RunLog) -> None:
    if run.accelerator.is_main_process:
        found = run_directory.environment(run.accelerator.device, run.accelerator.num_processes)
        changes = run_directory.changes_since(directory, found) if progress.step else []
        elsewhere = f"; the last bits may differ from here on: {', '.join(changes)}" if changes else ""
        log.note(f"continued from step {progress.step}{elsewhere}" if progress.step else "started")
        if run.teacher is not None and run.teacher.remark:
            log.note(run.teacher.remark)
        run_directory.write_text(directory / run_directory.ENVIRONMENT_NAME, found.to_json())


def _log_step(run: Run, progress: Progress, log: RunLog, outcome: StepOutcome, rate: float) -> None:
    parts = {f"loss_{name}": value for name, value in outcome.losses.items()} if len(outcome.losses) > 1 else {}
    values = {"loss": outcome.loss, **parts, **outcome.metrics, "gradient_norm": outcome.gradient_norm}
    for averages in (progress.recent, progress.epoch):
        averages.add(values)
    place = {"epoch": run.epoch_of(progress.step), "samples": run.samples_after(progress.step)}
    clock = {"seconds": progress.seconds}
    if outcome.monitor:
        log.write("monitor", progress.step, place | outcome.monitor | clock)
    if progress.step % run.config.log_every == 0 or progress.step == run.num_steps:
        log.write("train", progress.step, place | progress.recent.means() | {"learning_rate": rate} | clock)
        progress.recent.reset()


def _end_epoch(run: Run, progress: Progress, log: RunLog, directory: Path, epoch: int) -> None:
    log.write("epoch", progress.step, {"epoch": epoch, **progress.epoch.means(), "seconds": progress.seconds})
    progress.epoch.reset()
    if epoch in run.config.snapshots:
        _keep_snapshot(run, progress, directory, epoch)
    every = run.config.evaluation.every
    if every and epoch % every == 0 and epoch < run.config.epochs:
        _evaluate(run, progress, log, epoch)


def _keep_snapshot(run: Run, progress: Progress, directory: Path, epoch: int) -> None:
    """Keep the student of an epoch, and beside it all that the run would go on from, for studies that do."""
    groups, values = capture(run, progress)
    if not run.accelerator.is_main_process:
        return
    path = directory / SNAPSHOTS_NAME / f"epoch-{epoch:03d}.safetensors"
    materials.save_weights(run.student, path, run.dataset.class_names)
    states = snapshot_states(directory, epoch)
    states.sweep()
    if not states.steps():  # a run that was stopped before its next checkpoint comes here again
        states.save(progress.step, groups, values)


def snapshot_states(directory: Path, epoch: int) -> Checkpoints:
    """Where a run keeps the whole state of a snapshot: the optimiser, scaler and generators included."""
    return Checkpoints(directory / SNAPSHOTS_NAME / f"epoch-{epoch:03d}", keep=1)


def _evaluate(run: Run, progress: Progress, log: RunLog, epoch: int) -> Evaluation:
    found = evaluate(
        run.student,
        run.test_dataset,
        run.preparation,
        run.accelerator,
        batch_size=run.config.evaluation.batch_size,
        workers=run.config.workers,
    )
    values: dict[str, Any] = {"epoch": epoch, "accuracy": found.accuracy, "label_loss": found.label_loss}
    log.write("evaluation", progress.step, values | {"seconds": progress.seconds})
    return found


def _finish(run: Run, progress: Progress, log: RunLog, directory: Path) -> RunResult:
    """Evaluate the student of the last epoch: the only one that counts."""
    config = run.config
    found = _evaluate(run, progress, log, config.epochs)
    result = RunResult(
        objective=config.objective.name,
        seed=config.seed,
        epochs=config.epochs,
        steps=progress.step,
        samples=run.samples_after(progress.step),
        skipped_steps=progress.skipped_steps,
        accuracy=found.accuracy,
        label_loss=found.label_loss,
        test_samples=len(found.labels),
        student_fingerprint=weights_fingerprint(run.student),
        data_fingerprint=run.dataset.fingerprint,
        teacher_fingerprint=None if run.teacher is None else run.teacher.fingerprint,
        initial_fingerprint=None if run.initial is None else run.initial.fingerprint,
        processes=run.accelerator.num_processes,
        seconds=progress.seconds,
        class_names=run.dataset.class_names,
    )
    if run.accelerator.is_main_process:
        materials.save_weights(run.student, directory / STUDENT_NAME, run.dataset.class_names)
        found.publish(directory / TEST_LOGITS_NAME, run.test_dataset.class_names)
        log.note(f"finished: accuracy {found.accuracy:.4f}")
        # Last, because a run with a result is never looked at again.
        run_directory.write_text(directory / run_directory.RESULT_NAME, result.to_json())
    run.accelerator.wait_for_everyone()
    return result
