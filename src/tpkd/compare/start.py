"""What all cells of a grid share, prepared first: the data, the initial student, the teacher and its caches."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from tpkd.compare.grid import Grid
from tpkd.compare.record import DataFacts, NetworkState, SeedStart
from tpkd.competence.counts import AnswerCounts
from tpkd.competence.reading import competence_sentences
from tpkd.config.loading import expand_data, keyed
from tpkd.config.schema import RunConfig
from tpkd.data.configured import load_data, load_validation
from tpkd.data.dataset import Dataset
from tpkd.diagnosis.teacher_floor import TeacherFloor
from tpkd.files import publish, writing
from tpkd.geometry.averaging import average_probabilities, shares_of
from tpkd.models.classifier import Classifier
from tpkd.models.preparation import student_preparation
from tpkd.models.student import build_student
from tpkd.models.weights import weights_fingerprint
from tpkd.remote_files import is_remote
from tpkd.teacher import caching
from tpkd.teacher.cache.build import BuildProgress
from tpkd.teacher.cache.remote import readable_cache
from tpkd.teacher.caching import OnNote, noted
from tpkd.teacher.network import build_teacher, teacher_preparation
from tpkd.teacher.opening import given_test_logits, open_teacher
from tpkd.teacher.several import each_alone, keyed_as
from tpkd.training.directory import read_result
from tpkd.training.evaluation import Evaluation, evaluate
from tpkd.training.run import build_objective, start_accelerator

TEACHER_NAME = "teacher.npy"
LABELS_NAME = "labels.npy"
START_NAME = "start.npy"
"""Test logits of the student before training; `start-SEED.npy` where every seed has a start of its own."""

OnStage = Callable[[str, int, int], None]
"""Called with the name of a stage, its parts that are done, and how many there are."""


@dataclass(frozen=True)
class Shared:
    """What every cell starts from, and how it performs on the part that the cells are judged on."""

    data: DataFacts
    start: NetworkState
    teacher: NetworkState | None
    teacher_fingerprint: str | None
    starts: tuple[SeedStart, ...] = ()
    """Of every seed, where they differ."""

    def fingerprints(self, seed: int) -> dict[str, str | None]:
        """Field of a run's result -> what it is for every cell of a seed."""
        own = {start.seed: start.data_fingerprint for start in self.starts}
        return {
            "data_fingerprint": own.get(seed, self.data.fingerprint),
            "teacher_fingerprint": self.teacher_fingerprint,
        }


def prepare(grid: Grid, on_stage: OnStage, on_note: OnNote = lambda sentence: None) -> Shared:
    """Build what is shared, once and before the first cell; what is wrong with it is said before anything is trained.

    Caches that the configuration names are built or finished. The labels and the test logits of the teacher and of the
    start are kept beside the cells, as `tpkd diagnose` takes them. `on_note` is told how often the teacher is right, on
    what it is cached for and on the test samples. In a sweep, the validation part takes the place of the test split,
    and nothing is kept.

    Raises:
        InputError: names the key or file.
    """
    config = grid.base
    test, validation = load_data(config, "test"), load_validation(config)
    tested = config.evaluation.test
    judged = test if tested or validation is None else validation
    accelerator = start_accelerator(config)
    device = accelerator.device
    begun = _begin(config, judged, grid.directory, accelerator)
    dataset, student, state = begun.dataset, begun.student, begun.state
    _build_caches(grid, on_stage, on_note)
    preparation = student_preparation(config, dataset)
    frozen = open_teacher(config, dataset, preparation, device)
    for key, section in config.named_teachers:
        if section.cache is not None and section.model is None:
            caching.note_cached_teacher(readable_cache(expand_data(section.cache)), dataset, noted(key, on_note))
    open_cells = [cell for cell in grid.cells if cell.asked and read_result(cell.directory) is None]
    for cell in {(cell.objective, cell.variant): cell for cell in open_cells}.values():
        build_objective(cell.config, student, frozen)
    if tested:
        save_array(grid.directory / LABELS_NAME, state.labels.numpy())
    teacher = None
    if frozen is not None:
        teacher, logits = _teacher_state(config, frozen.fingerprint, judged, accelerator)
        if logits is not None:
            if tested:
                save_array(grid.directory / TEACHER_NAME, logits.numpy())
            counts = AnswerCounts(judged.num_classes)
            counts.add(logits, state.labels, state.logits)
            for sentence in competence_sentences(counts.finish(), f"{judged.split} samples"):
                on_note(sentence)
    facts = DataFacts(
        name=test.name,
        classes=test.num_classes,
        train_samples=len(dataset),
        test_samples=len(test),
        fingerprint=dataset.fingerprint,
        class_names=dataset.class_names,
        validation_samples=None if validation is None else len(validation),
    )
    start = NetworkState(config.student.model, weights_fingerprint(student), state.accuracy, state.label_loss)
    shared = Shared(facts, start, teacher, frozen.fingerprint if frozen else None)
    if config.by_seed:
        return _with_starts(shared, _starts(grid, judged, accelerator, on_stage))
    if tested:
        save_array(grid.directory / START_NAME, state.logits.numpy())
    return shared


class _Begun(NamedTuple):
    """The training samples, and the student before its first step."""

    dataset: Dataset
    student: Classifier
    state: Evaluation


def _begin(config: RunConfig, judged: Dataset, directory: Path, accelerator: Any) -> _Begun:
    dataset = load_data(config, "train")
    student = build_student(config, dataset, directory=directory, device=accelerator.device)
    state = _evaluate(config, student, judged, student_preparation(config, judged), accelerator)
    return _Begun(dataset, student, state)


def _starts(grid: Grid, judged: Dataset, accelerator: Any, on_stage: OnStage) -> tuple[SeedStart, ...]:
    """The start of every seed; its logits on the test split are kept beside the cells."""
    configs = {cell.seed: cell.config for cell in grid.cells}
    found = []
    for done, (seed, config) in enumerate(sorted(configs.items())):
        on_stage("starts", done, len(configs))
        dataset, student, state = _begin(config, judged, grid.directory, accelerator)
        if config.evaluation.test:
            save_array(grid.directory / START_NAME.replace(".", f"-{seed}."), state.logits.numpy())
        fingerprint = weights_fingerprint(student)
        found.append(SeedStart(seed, fingerprint, dataset.fingerprint, state.accuracy, state.label_loss))
    on_stage("starts", len(configs), len(configs))
    return tuple(found)


def _with_starts(shared: Shared, starts: tuple[SeedStart, ...]) -> Shared:
    """Every seed with its own start; the means of all and one fingerprint of all in the place of those of one."""
    accuracy, label_loss = (fmean(getattr(each, name) for each in starts) for name in ("accuracy", "label_loss"))
    data, start = (_joint(getattr(each, name) for each in starts) for name in ("data_fingerprint", "fingerprint"))
    return replace(
        shared,
        data=replace(shared.data, fingerprint=data),
        start=NetworkState(shared.start.model, start, accuracy, label_loss),
        starts=starts,
    )


def _joint(fingerprints: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(fingerprints).encode()).hexdigest()


def _build_caches(grid: Grid, on_stage: OnStage, on_note: OnNote) -> None:
    for key, alone in each_alone(grid.base):
        assert alone.teacher is not None
        cache = alone.teacher.cache
        if cache is not None and alone.teacher.model is not None and not is_remote(cache):
            tell = partial(_tell, on_stage, f"{key} cache")
            with keyed_as(key):
                caching.build(alone, on_progress=tell, on_note=noted(key, on_note))
    if grid.base.initial.cache is not None:
        caching.build(grid.base, "initial", on_progress=partial(_tell, on_stage, "initial cache"), on_note=on_note)


def _tell(on_stage: OnStage, name: str, progress: BuildProgress) -> None:
    on_stage(name, progress.rows_done, progress.rows_total)


def _teacher_state(
    config: RunConfig, fingerprint: str, judged: Dataset, accelerator: Any
) -> tuple[NetworkState, torch.Tensor | None]:
    """How the teacher does on the test split or the validation part, and its logits where there are any.

    Several teachers answer with the average of their probabilities, which is known where all of them answer.
    """
    found = []
    for key, alone in each_alone(config):
        with keyed_as(key):
            found.append(_one_teacher(alone, fingerprint, judged, accelerator))
    if len(found) == 1:
        return found[0]
    shares = shares_of([teacher.weight for teacher in config.teachers], len(found))
    parts = ", ".join(f"{share:.2g} × {state.model}" for share, (state, _) in zip(shares, found, strict=True))
    name = f"average of the probabilities of {len(found)} teachers: {parts}"
    known = [logits for _, logits in found if logits is not None]
    if len(known) < len(found):
        return NetworkState(name, fingerprint, None, None), None
    logits, labels = average_probabilities(known, weights=shares), torch.from_numpy(judged.labels)
    return _state(name, fingerprint, logits, labels), logits


def _state(name: str, fingerprint: str, logits: torch.Tensor, labels: torch.Tensor) -> NetworkState:
    accuracy = (logits.argmax(-1) == labels).double().mean().item()
    return NetworkState(name, fingerprint, accuracy, cross_entropy(logits, labels).item())


def _one_teacher(
    config: RunConfig, fingerprint: str, judged: Dataset, accelerator: Any
) -> tuple[NetworkState, torch.Tensor | None]:
    assert config.teacher is not None
    if config.teacher.model is None:
        if config.teacher.test_logits is None or not config.evaluation.test:
            return NetworkState("from its cache", fingerprint, None, None), None
        logits, labels = given_test_logits(config, judged), torch.from_numpy(judged.labels)
        with keyed("teacher.test_logits"):  # every student would be compared with it after its training
            floor = TeacherFloor()
            floor.add(logits.double())
            floor.check(config.teacher.test_logits)
        return _state("from its cache", fingerprint, logits, labels), logits
    preparation = teacher_preparation(config, judged)
    found = _evaluate(config, build_teacher(config, judged), judged, preparation, accelerator)
    return NetworkState(config.teacher.model, fingerprint, found.accuracy, found.label_loss), found.logits


def _evaluate(config: RunConfig, network: Any, judged: Dataset, preparation: Any, accelerator: Any) -> Evaluation:
    network.to(accelerator.device)
    found = evaluate(network, judged, preparation, accelerator, config)
    network.to(torch.device("cpu"))
    return found


def save_array(path: Path, array: np.ndarray) -> None:
    """Write an array as .npy atomically; a write error becomes one line with the path."""
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        with publish(path) as file:
            np.save(file, array)
