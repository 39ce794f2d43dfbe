"""The states of a student as starting points: found, checked, and put back as often as a study asks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from tpkd.config.loading import ConfigError, keyed
from tpkd.config.schema import RunConfig
from tpkd.data.batches import ModelInputs, SampleBatch, TrainingBatches, load_batches
from tpkd.data.dataset import Dataset
from tpkd.data.slicing import to_device
from tpkd.errors import InputError
from tpkd.geometry import PAPER_BETA
from tpkd.mechanism.checks import Checks
from tpkd.mechanism.coefficient import create_for_study, study_beta
from tpkd.mechanism.given import GivenState, read_state, without_start
from tpkd.mechanism.record import Scaling, SnapshotState, StudySource
from tpkd.models.weights import weights_fingerprint
from tpkd.parameter_space import network_logits
from tpkd.teacher.cache.recipe import library_versions
from tpkd.teacher.teacher import Teacher
from tpkd.theory.monitor import MIN_CLASSES
from tpkd.training.checkpoint import Checkpoint
from tpkd.training.directory import CONFIG_NAME, check_bound, read_result
from tpkd.training.loop import snapshot_states, snapshot_weights
from tpkd.training.optimizer import set_rate
from tpkd.training.run import Run, assemble, check_names, start_accelerator
from tpkd.training.state import Progress, capture, restore

OnProgress = Callable[[int, int], None]
"""Called with the parts of a study that are done, and how many there are."""


State = int | GivenState
"""The epoch of a snapshot, or a state that was given as a file."""


def no_progress(done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Snapshot:
    """One state of the student, in memory."""

    about: SnapshotState
    checkpoint: Checkpoint


@dataclass(frozen=True)
class Bench:
    """A run put together again, on which its snapshots are looked at."""

    run: Run
    directory: Path
    teacher: Teacher
    start: Checkpoint
    """The run before its first step."""
    beta: float = PAPER_BETA
    """The coefficient of TPKD and its controls."""
    native: bool = False
    """Whether the study makes training iterations, which an optimiser with its history takes."""

    def head(self, scalings: Iterable[Scaling], checks: Checks | None = None) -> dict[str, Any]:
        """The fields of `StudyRecord`, with which every record of a study begins."""
        config = self.run.config
        source = StudySource(
            objective=config.objective.name,
            seed=config.seed,
            student=config.student.model,
            data=self.run.dataset.name,
            num_classes=self.run.dataset.num_classes,
            data_fingerprint=self.run.dataset.fingerprint,
            teacher_fingerprint=self.teacher.fingerprint,
            versions=library_versions(),
        )
        return {
            "source": source,
            "study_seed": config.study.seed,
            "tolerance": config.study.tolerance,
            "scalings": tuple(scalings),
            "checks": checks.records() if checks else (),
        }

    @property
    def learning_rate(self) -> float:
        """The rate of training iterations in a study, constant as in the paper."""
        return self.run.config.study.learning_rate or self.run.config.optimizer.learning_rate

    def snapshot(self, state: State) -> Snapshot:
        """Read a state and put the run there.

        Raises:
            InputError: there is none, it is damaged, or it belongs to another model, data set or teacher.
        """
        if isinstance(state, GivenState):
            return self._given(state)
        states, name = snapshot_states(self.directory, state), f"{self.run.config.objective.name.upper()}{state}"
        weights = snapshot_weights(self.directory, state)
        if not states.steps() and weights.exists():
            return self._given(GivenState(name, weights, epoch=state))
        checkpoint = states.load()
        if checkpoint is None:
            raise InputError(f"{states.directory}: expected the state after epoch {state}, found none")
        self._restore(checkpoint)
        about = SnapshotState(name, state, checkpoint.step, weights_fingerprint(self.run.student))
        return Snapshot(about, checkpoint)

    def _given(self, state: GivenState) -> Snapshot:
        result = read_result(self.directory) if state.epoch is not None else None
        if result is not None and result.data_fingerprint != self.run.dataset.fingerprint:
            expected, found = result.data_fingerprint, self.run.dataset.fingerprint
            raise InputError(f"{state.weights}: data: expected {expected!r}, as the run had, found {found!r}")
        about, checkpoint = read_state(self.run, self.start, state, native=self.native)
        self._restore(checkpoint)
        return Snapshot(about, checkpoint)

    def restore(self, snapshot: Snapshot) -> None:
        """Put model, buffers, optimiser, scaler and random state back to where the snapshot found them."""
        self._restore(snapshot.checkpoint)
        set_rate(self.run.optimizer, self.learning_rate)

    def _restore(self, checkpoint: Checkpoint) -> None:
        # Copies, because an optimiser goes on working in the very tensors it is given.
        groups = {
            group: {name: tensor.clone() for name, tensor in tensors.items()}
            for group, tensors in checkpoint.groups.items()
        }
        restore(self.run, replace(checkpoint, groups=groups))

    def batches(
        self, dataset: Dataset, *, batch_size: int, num_batches: int, seed: int | None = None
    ) -> TrainingBatches:
        """Fixed batches of a data set in the order and the views of a seed, by default the study's."""
        seed = self.run.config.study.seed if seed is None else seed
        num_samples = batch_size * num_batches
        return TrainingBatches(dataset, self.run.preparation, seed=seed, batch_size=batch_size, num_samples=num_samples)

    def visit(
        self, states: Sequence[State], batches: TrainingBatches, on_progress: OnProgress
    ) -> Iterator[tuple[Snapshot, Iterator[tuple[int, SampleBatch]]]]:
        """Each state with all batches, numbered; progress is told after each batch."""

        def numbered(done: int) -> Iterator[tuple[int, SampleBatch]]:
            for number, samples in enumerate(load_batches(batches, workers=self.run.config.workers)):
                yield number, samples
                on_progress(done + number + 1, len(states) * len(batches))

        for position, state in enumerate(states):
            yield self.snapshot(state), numbered(position * len(batches))

    def iterations(self, name: str, batches: TrainingBatches) -> Run:
        """The run with another objective and other batches; network, optimiser and scaler are the same objects."""
        config = self.run.config.model_copy(update={"batch_size": batches.batch_size})
        objective = create_for_study(name, self.beta)
        return replace(self.run, config=config, dataset=batches.dataset, batches=batches, objective=objective)

    def student_logits(self, inputs: ModelInputs) -> Float[Tensor, "N K"]:
        """Logits of the student in evaluation mode and its own precision, in float64 on the CPU."""
        on_device = to_device(inputs, self.run.accelerator.device)
        logits = network_logits(self.run.student, on_device, forward=call).double().cpu()
        if not logits.isfinite().all():
            found = logits[~logits.isfinite()][0].item()
            way_out = f"a smaller study.learning_rate than {self.learning_rate:g}, or a run that did not diverge"
            raise InputError(f"student: expected finite logits, found {found}; take {way_out}")
        return logits

    def teacher_logits(self, samples: SampleBatch) -> Float[Tensor, "N K"]:
        """What the teacher says about training samples, in float64 on the CPU."""
        inputs = to_device(samples.inputs, self.run.accelerator.device)
        answers = self.teacher.answer(inputs, samples.sample_ids, samples.view_ids)
        return answers.all_logits("tpkd study").double().cpu()


def call(model: nn.Module, inputs: ModelInputs) -> Tensor:
    """A classifier takes its inputs as one argument, texts included."""
    logits: Tensor = model(inputs)
    return logits


def open_bench(
    config: RunConfig,
    directory: str | Path | None = None,
    *,
    compared: tuple[str, ...] | None = None,
    given: bool = False,
    native: bool = False,
) -> Bench:
    """Put a trained run together again.

    Args:
        config: the run, as it was trained.
        directory: where it is kept, by default what the configuration says.
        compared: the objectives of the study, whose settings say the coefficient; the paper's without them.
        given: the states come from files, and there need not be a run.
        native: the study makes training iterations.

    Raises:
        InputError: there is no such run, it is of another configuration, or nothing can be studied on it.
    """
    if config.teachers:
        found = f"expected one teacher, found {len(config.teachers)}"
        raise ConfigError(f"teachers: {found}: a study follows steps towards a single one; train a run with teacher")
    beta = PAPER_BETA if compared is None else study_beta(config, compared)
    check_names(config)
    if config.data.unlabelled:
        raise ConfigError("data.unlabelled: expected false: a study looks at training samples with their labels")
    directory = Path(directory or config.directory)
    if given:
        config = without_start(config)
    else:
        _check_run(config, directory)
    accelerator = start_accelerator(config)
    if accelerator.num_processes > 1:
        raise InputError(f"study: expected a single process, found {accelerator.num_processes}")
    run = assemble(config, accelerator, directory)
    if run.teacher is None:
        raise ConfigError("teacher: missing, and a study compares the student with one")
    if run.dataset.num_classes < MIN_CLASSES:
        raise InputError(f"data: expected at least {MIN_CLASSES} classes, found {run.dataset.num_classes}")
    start = Checkpoint(0, *capture(run, Progress()))
    return Bench(run, directory, run.teacher, start, beta, native)


def _check_run(config: RunConfig, directory: Path) -> None:
    _check_snapshots(config)
    if not (directory / CONFIG_NAME).exists():
        raise InputError(
            f"{directory}: expected a run of {config.objective.name!r} with snapshots, found none; "
            "--state NAME=WEIGHTS studies weights from elsewhere"
        )
    check_bound(directory, config)


def _check_snapshots(config: RunConfig) -> None:
    if config.snapshot_seeds and config.seed not in config.snapshot_seeds:
        kept = ", ".join(map(str, config.snapshot_seeds))
        raise ConfigError(f"snapshot_seeds: expected the seed of the run, {config.seed}, found {kept}")
    if not config.snapshots:
        raise ConfigError("snapshots: missing, and a study looks at them, or at files with --state NAME=WEIGHTS")


def choose_states(
    config: RunConfig, key: str, chosen: Sequence[int], default: Sequence[int], given: Sequence[GivenState] = ()
) -> tuple[State, ...]:
    """The states a study looks at: those that were given, or epochs, each of which must have been kept.

    Example:
        >>> from tpkd.config.loading import resolve_config
        >>> run = {"output": "runs/a", "data": {"name": "digits"}, "student": {"model": "builtin:mlp"}, "epochs": 60}
        >>> run |= {"objective": "ce", "optimizer": {"name": "sgd", "learning_rate": 0.1}, "snapshots": [20, 40, 60]}
        >>> choose_states(resolve_config(run), "exact_head.states", (), (20, 60))
        (20, 60)
    """
    if given:
        return tuple(given)
    _check_snapshots(config)
    epochs = tuple(chosen or default)
    with keyed(f"study.{key}"):
        for epoch in epochs:
            if epoch not in config.snapshots:
                kept = ", ".join(map(str, config.snapshots))
                raise InputError(f"expected epochs of snapshots ({kept}), found {epoch}")
    return epochs


def ends(epochs: Sequence[int]) -> tuple[int, ...]:
    """The earliest and the latest, one where they are the same.

    Example:
        >>> ends([20, 60, 40]), ends([5]), ends([])
        ((20, 60), (5,), ())
    """
    ordered = sorted(epochs)
    return tuple(dict.fromkeys(ordered[:1] + ordered[-1:]))
