"""The training loop, from a configuration to a result, read from top to bottom."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tpkd.config.loading import PER_METHOD
from tpkd.config.schema import RunConfig
from tpkd.data.batches import load_batches
from tpkd.data.dataset import Dataset
from tpkd.errors import InputError
from tpkd.files import write_file
from tpkd.lock import Hold
from tpkd.models.weights import save_weights, weights_fingerprint
from tpkd.termination import TerminatedError, deferred
from tpkd.training import directory as run_directory
from tpkd.training.checkpoint import Checkpoint, Checkpoints
from tpkd.training.directory import (
    SNAPSHOTS_NAME,
    STUDENT_NAME,
    TEST_LOGITS_NAME,
    VALIDATION_LOGITS_NAME,
    RunResult,
    read_result,
)
from tpkd.training.evaluation import Evaluation, evaluate
from tpkd.training.finishing import PRECISIONS, keep_precision, tidy
from tpkd.training.log import RunLog, check_metrics
from tpkd.training.optimizer import set_rate
from tpkd.training.run import Given, Run, assemble, check_names, start_accelerator
from tpkd.training.schedule import rate_factor
from tpkd.training.selection import Best, choose, share_buffers
from tpkd.training.state import Progress, capture, restore
from tpkd.training.step import NonFiniteError, StepOutcome, name_samples, take_step
from tpkd.training.trackers import Trackers, chosen_trackers

MAX_SKIPPED = 64
"""Steps in a row that mixed precision may leave out. Each halves its scale, which is then below any sensible one."""


@dataclass(frozen=True)
class StepReport:
    """Progress after each step, for `on_step`."""

    step: int
    num_steps: int
    epoch: int
    loss: float


OnStep = Callable[[StepReport], None]


def train(
    config: RunConfig,
    directory: str | Path | None = None,
    *,
    resume: bool = False,
    on_step: OnStep | None = None,
    given: Given | None = None,
) -> RunResult:
    """Train a student; the same call again continues where the last one ended, bit for bit.

    Args:
        config: the run.
        directory: where it is kept, by default what the configuration says.
        resume: refuse to start from nothing.
        on_step: called by the first process after each step.
        given: data and networks of one's own, which the configuration does not name; see `tpkd.training.fit`.

    Returns:
        The result; of a run that is finished already, without computing anything.

    Raises:
        InputError: the configuration, a file it names, or the directory is invalid.
        NonFiniteError: a loss was NaN or infinite; the step was not taken.
        TerminatedError: SIGTERM came, and a checkpoint of the last step was saved.
    """
    check_names(config, given)
    directory = Path(directory or config.directory)
    accelerator = start_accelerator(config)
    with run_directory.held(directory, main=accelerator.is_main_process) as hold:
        accelerator.wait_for_everyone()
        if resume and not run_directory.has_progress(directory):
            raise InputError(f"{directory}: expected a checkpoint to continue from, found none")
        abandoned = run_directory.bind(directory, config) if accelerator.is_main_process else None
        finished = read_result(directory)
        if finished is not None:
            if accelerator.is_main_process:
                tidy(directory, config.finished)  # the run that wrote the result may have been killed before
            return finished
        checkpoints = run_directory.checkpoints_of(directory, keep=config.checkpoints.keep)
        if accelerator.is_main_process:
            checkpoints.sweep()
        run = assemble(config, accelerator, directory, given)
        return _train(run, checkpoints, hold, on_step, abandoned)


def _train(run: Run, checkpoints: Checkpoints, hold: Hold, on_step: OnStep | None, abandoned: Path | None) -> RunResult:
    config, main, directory = run.config, run.accelerator.is_main_process, hold.directory
    saved, notes = _find(run, checkpoints, directory)
    progress = Progress() if saved is None else restore(run, saved)
    settings = dict(run_directory.flat_items("", config.model_dump(mode="json", exclude=set(PER_METHOD))))
    trackers = Trackers(chosen_trackers(config.tracking), directory, settings)
    log = RunLog(directory, offset=progress.metrics_bytes, step=progress.step, trackers=trackers, writes=main)
    before, started = progress.seconds, time.monotonic()
    with log:
        if abandoned is not None:
            log.note(f"a run of another configuration, without a checkpoint, was moved to {abandoned.name}")
        for note in notes:
            log.note(note)
        _note_start(run, progress, directory, log)
        batches = load_batches(run.batches, start=progress.step, workers=config.workers)
        with deferred() as asked, closing(batches):
            for step, samples in enumerate(batches, start=progress.step + 1):
                factor = rate_factor(config.schedule, step - 1, run.num_steps, run.epoch_of(step))
                rate = config.optimizer.learning_rate * factor
                set_rate(run.optimizer, rate)
                look = run.can_look and config.monitor_every > 0 and step % config.monitor_every == 0
                outcome = take_step(run, step, samples, look=look)

                hold.check()
                progress.step, progress.seconds = step, before + time.monotonic() - started
                _count_skipped(progress, outcome)
                _log_step(run, progress, log, outcome, rate)
                for epoch in run.epochs_ended(step):
                    _end_epoch(run, progress, log, directory, epoch)
                ending = _agree(run, asked())
                if ending or step % config.checkpoints.every == 0 or step == run.num_steps:
                    progress.metrics_bytes, progress.metrics_sha256 = log.sync()
                    groups, values = capture(run, progress)
                    if main:
                        checkpoints.save(step, groups, values)
                if on_step is not None and main:
                    on_step(StepReport(step, run.num_steps, run.epoch_of(step), outcome.loss))
                if ending:
                    run.accelerator.wait_for_everyone()
                    raise TerminatedError(f"SIGTERM, with a checkpoint of step {step}")
        return _finish(run, progress, log, hold)


def _find(run: Run, checkpoints: Checkpoints, directory: Path) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to continue from, as the first process finds it, and what the log must say about newer ones."""
    from accelerate.utils import broadcast_object_list

    saved, notes, told = None, [], [(0, "")]
    if run.accelerator.is_main_process:
        try:
            found = checkpoints.find(lambda checkpoint: check_metrics(directory, checkpoint))
            for step, problem in found.damaged.items():
                notes.append(
                    f"checkpoint of step {step} is damaged and now {checkpoints.set_aside(step).name}: {problem}"
                )
            saved = found.checkpoint
            told = [(saved.step if saved else 0, "")]
        except InputError as error:
            told = [(0, str(error))]
    broadcast_object_list(told)
    step, problem = told[0]
    if problem:
        raise InputError(problem)
    if not run.accelerator.is_main_process and step:
        saved = checkpoints.load(step)
    return saved, notes


def _agree(run: Run, asked: bool) -> bool:
    """Whether any process was asked to end: all of them save and stop at the same step."""
    if run.accelerator.num_processes == 1:
        return asked
    count = torch.tensor(int(asked), device=run.accelerator.device)
    return bool(run.accelerator.reduce(count).item())


def _count_skipped(progress: Progress, outcome: StepOutcome) -> None:
    progress.skipped_steps += outcome.skipped
    progress.overflows = progress.overflows + 1 if outcome.skipped else 0
    if progress.overflows > MAX_SKIPPED:
        problem = f"gradients have overflowed {progress.overflows} times in a row and nothing is learned"
        raise NonFiniteError(f"step {progress.step}: {problem}; try a lower learning rate, or precision bf16 or fp32")


def _note_start(run: Run, progress: Progress, directory: Path, log: RunLog) -> None:
    if run.accelerator.is_main_process:
        found = run_directory.environment(run.accelerator.device, run.accelerator.num_processes)
        changes = run_directory.changes_since(directory, found) if progress.step else []
        processes = f"processes {progress.processes} -> {found.processes}"
        if progress.processes not in (None, found.processes) and processes not in changes:
            changes.append(processes)
        elsewhere = f"; the last bits may differ from here on: {', '.join(changes)}" if changes else ""
        log.note(f"continued from step {progress.step}{elsewhere}" if progress.step else "started")
        if run.teacher is not None and run.teacher.remark:
            log.note(run.teacher.remark)
        parts = (run.dataset, run.test_dataset, run.validation_dataset)
        for note in dict.fromkeys(note for part in parts if part is not None for note in part.notes):
            log.note(note)
        write_file(directory / run_directory.ENVIRONMENT_NAME, found.to_json())


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
    if epoch == run.config.epochs:
        return  # looked at when the run finishes
    every = run.config.evaluation.every
    often = every or int(run.selects)
    if often and epoch % often == 0:
        _validate(run, progress, log, epoch)
    if every and epoch % every == 0:
        _test(run, progress, log, epoch)


def _keep_snapshot(run: Run, progress: Progress, directory: Path, epoch: int) -> None:
    """Keep the student of an epoch, and beside it all that the run would go on from, for studies that do."""
    groups, values = capture(run, progress)
    if not run.accelerator.is_main_process:
        return
    save_weights(run.student, snapshot_weights(directory, epoch), run.dataset.class_names)
    states = snapshot_states(directory, epoch)
    states.sweep()
    if not _holds(states, progress.step, groups):  # a run that was stopped before its next checkpoint comes here again
        states.save(progress.step, groups, values)


def _holds(states: Checkpoints, step: int, groups: Mapping[str, Mapping[str, Tensor]]) -> bool:
    """Whether the very same state is kept already; after another number of processes it may be another one."""
    try:
        kept = states.load(step) if step in states.steps() else None
    except InputError:  # damaged, and about to be replaced
        return False
    return kept is not None and all(
        kept.groups[group].keys() == tensors.keys()
        and all(kept.groups[group][name].equal(tensor.cpu()) for name, tensor in tensors.items())
        for group, tensors in groups.items()
    )


def snapshot_states(directory: Path, epoch: int) -> Checkpoints:
    """Where a run keeps the whole state of a snapshot: the optimiser, scaler and generators included."""
    return Checkpoints(directory / SNAPSHOTS_NAME / f"epoch-{epoch:03d}", keep=1)


def snapshot_weights(directory: Path, epoch: int) -> Path:
    """Where a run keeps the student of a snapshot."""
    return directory / SNAPSHOTS_NAME / f"epoch-{epoch:03d}.safetensors"


def _test(run: Run, progress: Progress, log: RunLog, epoch: int) -> Evaluation | None:
    """The student on the test split; None where that is not to be looked at."""
    if not run.config.evaluation.test:
        return None
    return _evaluate(run, run.test_dataset, "evaluation", progress, log, epoch)


def _validate(run: Run, progress: Progress, log: RunLog, epoch: int) -> Evaluation | None:
    """The student on the validation part, None where there is none; the best one is kept where it is the result."""
    if run.validation_dataset is None:
        return None
    share_buffers(run)
    found = _evaluate(run, run.validation_dataset, "validation", progress, log, epoch)
    log.note(f"validation after epoch {epoch}: accuracy {found.accuracy:.4f}, label loss {found.label_loss:.4f}")
    if run.selects:
        progress.best = choose(progress.best, run.student, epoch, found)
    return found


def _evaluate(run: Run, dataset: Dataset, kind: str, progress: Progress, log: RunLog, epoch: int) -> Evaluation:
    found = evaluate(run.student, dataset, run.preparation, run.accelerator, run.config)
    wrong = ~functional.cross_entropy(found.logits, found.labels, reduction="none").isfinite()
    if wrong.any():
        samples = name_samples(found.sample_ids[wrong].tolist())
        raise NonFiniteError(f"{kind} after step {progress.step}: logits are not finite for {samples}")
    values: dict[str, Any] = {"epoch": epoch, "accuracy": found.accuracy, "label_loss": found.label_loss}
    log.write(kind, progress.step, values | {"seconds": progress.seconds})
    return found


def _finish(run: Run, progress: Progress, log: RunLog, hold: Hold) -> RunResult:
    """Evaluate the student that counts: that of the last epoch, or the one that the validation part selects."""
    config, directory, best = run.config, hold.directory, None
    validation = _validate(run, progress, log, config.epochs)
    validated: Evaluation | Best | None = validation
    if progress.best is not None:
        validated = best = progress.best
        run.student.load_state_dict(best.state)
        if best.epoch != config.epochs and run.validation_dataset is not None:
            validation = evaluate(run.student, run.validation_dataset, run.preparation, run.accelerator, config)
    found = _test(run, progress, log, config.epochs if best is None else best.epoch)
    result = RunResult(
        objective=config.objective.name,
        seed=config.seed,
        epochs=config.epochs,
        steps=progress.step,
        samples=run.samples_after(progress.step),
        skipped_steps=progress.skipped_steps,
        accuracy=found.accuracy if found else None,
        label_loss=found.label_loss if found else None,
        test_samples=len(found.labels) if found else None,
        student_fingerprint=weights_fingerprint(run.student),
        data_fingerprint=run.dataset.fingerprint,
        teacher_fingerprint=None if run.teacher is None else run.teacher.fingerprint,
        initial_fingerprint=None if run.initial is None else run.initial.fingerprint,
        processes=run.accelerator.num_processes,
        seconds=progress.seconds,
        class_names=run.dataset.class_names,
        validation_accuracy=validated.accuracy if validated else None,
        validation_label_loss=validated.label_loss if validated else None,
        validation_samples=None if run.validation_dataset is None else len(run.validation_dataset),
        selection=config.selection,
        selected_epoch=best.epoch if best else None,
    )
    kept = keep_precision(run, found, log)
    result = replace(result, kept=kept)
    hold.check()
    if run.accelerator.is_main_process:
        precision = PRECISIONS[kept.precision] if kept else None
        save_weights(run.student, directory / STUDENT_NAME, run.dataset.class_names, dtype=precision)
        if found is not None:
            found.publish(directory / TEST_LOGITS_NAME, run.test_dataset.class_names)
        if validation is not None:
            validation.publish(directory / VALIDATION_LOGITS_NAME, run.dataset.class_names)
        log.note(_summary(result))
        # After all that a run needs to get here, because one with a result is never continued.
        write_file(directory / run_directory.RESULT_NAME, result.to_json())
        if removed := tidy(directory, config.finished):
            log.note(f"removed {removed / 1e6:.1f} MB of saved states, as `finished` asks")
    run.accelerator.wait_for_everyone()
    return result


def _summary(result: RunResult) -> str:
    parts = [] if result.accuracy is None else [f"accuracy {result.accuracy:.4f}"]
    if result.validation_accuracy is not None:
        parts.append(f"validation accuracy {result.validation_accuracy:.4f}")
    return "finished: " + ", ".join([*parts, *([result.selected] if result.selected else [])])
