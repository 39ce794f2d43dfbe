"""`fit`: a run on data and networks of one's own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from tpkd.config.loading import ConfigError, keyed, resolve_config
from tpkd.config.schema import RunConfig
from tpkd.data.configured import load_data
from tpkd.data.dataset import Dataset
from tpkd.data.loading import OWN
from tpkd.data.own import own_dataset
from tpkd.errors import InputError
from tpkd.models.preparation import student_preparation
from tpkd.models.weights import load_weights
from tpkd.teacher.teacher import OnlineTeacher
from tpkd.training import loop
from tpkd.training.directory import STUDENT_NAME, RunResult
from tpkd.training.loop import OnStep
from tpkd.training.own_network import OwnNetwork, check_logits
from tpkd.training.run import Given

DATA_KEYS = ("class_weights", "except_per_class", "per_class", "seed", "test", "unlabelled", "validation")
"""What a configuration may say about a data set of one's own."""
WORDS = {"data": "data set", "student": "network", "teacher": "network"}


def fit(
    config: Mapping[str, Any] | RunConfig,
    *,
    train: Any,
    test: Any = None,
    validation: Any = None,
    class_names: Sequence[str],
    student: nn.Module | None = None,
    teacher: nn.Module | None = None,
    directory: str | Path | None = None,
    resume: bool = False,
    on_step: OnStep | None = None,
) -> RunResult:
    """Train on a data set of one's own, and with networks of one's own, in the engine of `tpkd train`.

    All that a run has is there: exact accumulation, checkpoints and resuming, evaluation, result files. The same call
    again continues where the last one ended.

    Args:
        config: as in a YAML file, without what is given here. `data`, `student` and `teacher` may be left out for it,
            or say more about it, such as `data: {per_class: 20}`.
        train: a map-style data set: `train[position]` is `(x, y, id)`; see `tpkd.data.own.own_dataset`.
        test: the same for the test part; without it, `data.test` says which share of each class is held out.
        validation: the same for a validation part, if there is one; see `selection` and `data.validation`.
        class_names: in the order of the logits.
        student: a network that returns logits, trained in place; default: what the configuration names.
        teacher: a trained network that returns logits, frozen in place; default: what the configuration names.
        directory: where the run is kept, by default what the configuration says.
        resume: refuse to start from nothing.
        on_step: called by the first process after each step.

    Returns:
        The result of the run; the student has the trained weights.

    Raises:
        InputError: names the key, or the sample by its id.

    Example:
        >>> import tempfile, torch
        >>> points = [(torch.randn(4), number % 3, number) for number in range(30)]
        >>> config = {"output": tempfile.mkdtemp(), "objective": "ce", "epochs": 1, "tensorboard": False}
        >>> config |= {"optimizer": {"name": "sgd", "learning_rate": 0.1}}
        >>> network = nn.Linear(4, 3)
        >>> result = fit(config, train=points, test=points, class_names=["a", "b", "c"], student=network)
        >>> result.samples, result.class_names
        (30, ('a', 'b', 'c'))
    """
    resolved = _resolve(config, student, teacher)
    with keyed("data"):
        parts = {"train": train, "test": test, "validation": validation}
        data = {split: own_dataset(part, split, class_names) for split, part in parts.items() if part is not None}
    if student is not None and data["train"].kind == "text":
        found = f"found a {type(student).__name__}, for which there is no tokenizer"
        raise InputError(f"student: expected builtin:bert or hf:PATH_OR_ID in the configuration for texts, {found}")
    for owner, network in {"student": student, "teacher": teacher}.items():
        if network is not None:
            inputs = student_preparation(resolved, data["train"]).inputs(data["train"], [0])
            check_logits(owner, network, inputs, len(class_names))
    place, given = Path(directory or resolved.directory), _given(data, student, teacher)
    result = loop.train(resolved, place, resume=resume, on_step=on_step, given=given)
    _check_finished(place, result, resolved, given)
    if student is not None:
        load_weights(student, place / STUDENT_NAME)  # a run that was finished before has trained another object
    return result


def _given(data: Mapping[str, Dataset], student: nn.Module | None, teacher: nn.Module | None) -> Given:
    own_student = None if student is None else OwnNetwork(student, data["train"].num_classes)
    return Given(data, own_student, None if teacher is None else OnlineTeacher(teacher, student=student))


def _resolve(config: Mapping[str, Any] | RunConfig, student: nn.Module | None, teacher: nn.Module | None) -> RunConfig:
    """The configuration with the names of what is given, and nothing else about it that would be ignored."""
    given = {"data": "name"} | {
        owner: "model" for owner, network in (("student", student), ("teacher", teacher)) if network is not None
    }
    if not isinstance(config, RunConfig):
        own = {key: {name: OWN, **(config.get(key) or {})} for key, name in given.items()}
        config = resolve_config({**config, **own})
    for key, name in given.items():
        section = getattr(config, key)
        if getattr(section, name, None) != OWN:
            found = repr(getattr(section, name, None))
            raise ConfigError(f"{key}.{name}: expected {OWN}, because it is given, found {found}; leave it out")
        kept = DATA_KEYS if key == "data" else ()
        other = next((other for other in section.model_dump(exclude_defaults=True) if other not in (name, *kept)), None)
        if other is not None:
            raise ConfigError(f"{key}.{other}: expected none beside a {WORDS[key]} of your own")
    return config


def _check_finished(place: Path, result: RunResult, config: RunConfig, given: Given) -> None:
    """Refuse the result of an earlier run on other data or from another teacher, which no file would show."""
    expected = {"data": load_data(config, "train", given.data).fingerprint}
    if given.teacher is not None:
        expected["teacher"] = given.teacher.fingerprint
    for name, fingerprint in expected.items():
        if getattr(result, f"{name}_fingerprint") != fingerprint:
            raise InputError(f"{place}: holds a finished run with other {name}; take another output")
