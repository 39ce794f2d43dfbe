"""A student on whole data sets: batches of classes, probabilities and margins, never more than one in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from tpkd.config.data import DataConfig
from tpkd.config.loading import expand_data, keyed
from tpkd.config.schema import EvaluationConfig, RunConfig
from tpkd.data.batches import ModelInputs, PlainBatches, load_batches
from tpkd.data.configured import load_data
from tpkd.data.dataset import Dataset
from tpkd.data.loading import SPLITS, check_dataset, load_dataset
from tpkd.errors import InputError, did_you_mean
from tpkd.files import read_lines
from tpkd.student.loading import Predictions, Student, read_run
from tpkd.training.directory import CONFIG_NAME

SHARED_KEYS = ("root", "columns")
"""Settings of the run's data that also describe other data of the same kind."""
ONLY_PART = "train"
"""The split that a single table has."""


@dataclass(frozen=True)
class PredictedBatch:
    """What a student says about some samples."""

    sample_ids: Int[Tensor, "N"]
    """As in the data set; for lines of text their number, from 0."""
    found: Predictions
    labels: Int[Tensor, "N"] | None
    """The true classes in the student's order, None where there are none."""

    @property
    def correct(self) -> Tensor | None:
        """Which predictions are the label, `(N,)`."""
        return None if self.labels is None else self.found.indices == self.labels


@dataclass(frozen=True)
class LinesOfText:
    """A file of texts, one per line and without labels, read as it is needed."""

    path: Path

    def texts(self) -> Iterator[str]:
        """The lines; empty ones are ignored at the end and refused before it, because they would shift all others."""
        empty = None
        for number, line in enumerate(read_lines(self.path), start=1):
            if not line.strip():
                empty = empty or number
            elif empty is not None:
                raise InputError(f"{self.path}: line {empty}: expected a text, found an empty line")
            else:
                yield line
        if empty == 1 or (empty is None and not self.path.stat().st_size):
            raise InputError(f"{self.path}: expected one text per line, found none")


Source = Dataset | LinesOfText


def open_data(student: Student, name: str, split: str | None = None, *, unlabelled: bool = False) -> Source:
    """What `tpkd predict` is asked about, checked to be of the student's kind.

    Args:
        student: who will predict.
        name: what `data.name` of a configuration takes, or a file with one text per line.
        split: `train` or `test`, by default `test`; a single table has one part, which is taken as it is.
        unlabelled: the data have no labels, or none that are to be read.

    Raises:
        InputError: an unknown name, files that are missing or damaged, or inputs of another kind.
    """
    if ":" not in name and Path(name).is_file():
        return _open_lines(student, Path(name), split)
    try:
        check_dataset(name)
    except InputError as error:
        raise InputError(f"{error}; or a file with one text per line") from error
    run = read_run(student.folder)[0] if (student.folder / CONFIG_NAME).exists() else None
    config = _config_for(run, name)
    if split is None:
        path = Path(config.data.root or ".") / name.partition(":")[2]
        single = ":" in name and path.is_file() and not (run is not None and run.data.name == name)
        split = ONLY_PART if single or (unlabelled and _is_plain_folder(name, path)) else "test"
    dataset = _load_unlabelled(student, config, split) if unlabelled else load_data(config, split)
    if dataset.kind not in student.recipe.kind:
        raise InputError(f"{name}: expected {student.recipe.kind} data, as the run had, found {dataset.kind} data")
    return dataset


def _is_plain_folder(name: str, path: Path) -> bool:
    """Whether these are images in a folder that has no parts."""
    return name.startswith("folder:") and not any((path / part).is_dir() for part in ("train", "test"))


def _load_unlabelled(student: Student, config: RunConfig, split: str) -> Dataset:
    data = config.data
    with keyed("data"):
        return load_dataset(
            expand_data(data.name),
            split,
            root=None if data.root is None else expand_data(data.root),
            columns={role: name for role, name in data.columns.given.items() if role != "label"},
            splits={name: expand_data(part) for name, part in data.splits.given.items()},
            unlabelled=SPLITS,
            class_names=student.class_names if ":" in data.name else None,
        )


def _open_lines(student: Student, path: Path, split: str | None) -> LinesOfText:
    if student.recipe.kind != "text":
        raise InputError(f"{path}: expected {student.recipe.kind} data such as folder:PATH, found a file of texts")
    if split is not None:
        raise InputError(f"{path}: a file with one text per line has no split {split!r}; leave out --split")
    return LinesOfText(path)


def _config_for(run: RunConfig | None, name: str) -> RunConfig:
    """A configuration whose data are the ones asked for, without the limits of a trial."""
    if run is not None and run.data.name == name:
        data = run.data
    else:
        kept = {} if run is None else {key: getattr(run.data, key) for key in SHARED_KEYS if hasattr(run.data, key)}
        with keyed("data"):
            # A label that occurs once is likely a typo in training data, and nothing special here.
            data = DataConfig(name=name, allow_singletons=True, **kept)
    base = run if run is not None else RunConfig.model_construct(limit=None)
    return base.model_copy(update={"data": data, "limit": None, "evaluation": EvaluationConfig()})


def student_classes(student: Student, dataset: Dataset) -> Int[Tensor, "C"]:
    """The student's class of each class of a data set, by name, whatever the order and however many there are.

    Raises:
        InputError: a class that the student does not have.
    """
    places = {name.casefold().strip(): place for place, name in enumerate(student.class_names)}
    for name in dataset.class_names:
        if name.casefold().strip() not in places:
            hint = did_you_mean(name, student.class_names)
            raise InputError(
                f"{dataset.name}: class {name!r}: expected one of the student's {len(places)} classes{hint}"
            )
    return torch.tensor([places[name.casefold().strip()] for name in dataset.class_names])


def predict_batches(student: Student, source: Source, *, batch_size: int, workers: int = 0) -> Iterator[PredictedBatch]:
    """Every sample once, in order."""
    if isinstance(source, LinesOfText):
        yield from _predict_lines(student, source, batch_size)
        return
    classes = student_classes(student, source)
    batches = PlainBatches(source, student.preparation, batch_size=batch_size)
    for batch in load_batches(batches, workers=workers):
        assert not batch.labels.is_floating_point()
        labels = classes[batch.labels] if source.labelled else None
        yield PredictedBatch(batch.sample_ids, _ask(student, batch.inputs), labels)


def _predict_lines(student: Student, lines: LinesOfText, batch_size: int) -> Iterator[PredictedBatch]:
    done = 0
    texts = lines.texts()
    while chunk := list(islice(texts, batch_size)):
        yield PredictedBatch(torch.arange(done, done + len(chunk)), _ask(student, student.preprocess(chunk)), None)
        done += len(chunk)


def _ask(student: Student, inputs: ModelInputs) -> Predictions:
    (logits,) = student.logits(iter([inputs]))
    return student.read_off(logits)
