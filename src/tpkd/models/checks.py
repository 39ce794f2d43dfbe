"""Whether a teacher or a student fits the data: its classes and its inputs."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tpkd.class_names import check_class_names, check_declared_names, recorded_names
from tpkd.config.loading import ConfigError, expand_data
from tpkd.config.schema import StudentConfig, TeacherConfig
from tpkd.data.batches import Preparation
from tpkd.data.class_map import ClassMap
from tpkd.data.dataset import Dataset
from tpkd.errors import reason
from tpkd.models.classifier import Classifier, extract_features


def check_student_classes(student: StudentConfig, dataset: Dataset, model: Classifier | None = None) -> None:
    """Refuse a student whose own head was trained on other classes, or on the same classes in a different order.

    Args:
        student: its section of the configuration.
        dataset: what it will be trained on.
        model: the student; None before it is built, when only the names in its weights are checked, so that a mismatch
            of classes is reported before a mismatch of shapes.

    Raises:
        InputError: names the first class that differs.
    """
    brought = _brought(student, model)
    way_out = "student.head: random puts a new head for these classes on it"
    check_class_names(
        brought.names, dataset.class_names, found_in=brought.source, expected_in=dataset.name, way_out=way_out
    )


def check_teacher_classes(
    teacher: TeacherConfig, dataset: Dataset, mapping: ClassMap | None, model: Classifier | None = None
) -> None:
    """Refuse a teacher with other classes, or the same in a different order, unless `teacher.class_names` maps them.

    Args:
        teacher: its section of the configuration.
        dataset: what the student will be trained on.
        mapping: the map from `teacher.class_names`; None if it is not set.
        model: the teacher; None before it is built.

    Raises:
        InputError: names the first class that differs, and the file that maps the classes by name.
    """
    brought = _brought(teacher, model)
    if mapping is not None:
        declared = f"class_names {teacher.class_names}"
        check_declared_names(mapping.teacher_names, brought.names, file=declared, network=brought.place)
        return
    way_out = f"teacher.class_names: {brought.file} maps its classes by name, teacher.rename those with another name"
    check_class_names(
        brought.names, dataset.class_names, found_in=brought.source, expected_in=dataset.name, way_out=way_out
    )


class _Brought(NamedTuple):
    """The class names of a network and where they come from."""

    names: tuple[str, ...] | None
    key: str
    place: str
    file: str
    """A file that `teacher.class_names` accepts."""

    @property
    def source(self) -> str:
        """Its name in messages."""
        return f"{self.key} {self.place}"


def _brought(section: StudentConfig | TeacherConfig, model: Classifier | None) -> _Brought:
    if section.weights is not None:
        path = expand_data(section.weights)
        if model is None:
            return _Brought(recorded_names(path) if section.head == "own" else None, "weights", path, path)
        return _Brought(model.class_names, "weights", path, path)
    name = expand_data(str(section.model))
    config = Path(name.removeprefix("hf:")) / "config.json"
    names = None if model is None else model.class_names
    return _Brought(names, "model", name, str(config) if config.is_file() else "FILE")


def check_inputs(owner: str, name: str, model: Classifier, dataset: Dataset, preparation: Preparation) -> None:
    """Try a network on one sample (the longest text), so that a mismatch is reported before any long computation.

    Raises:
        ConfigError: names the network, the data, and what the network found wrong with them.
    """
    texts = dataset.inputs if isinstance(dataset.inputs, tuple) else ("",)
    inputs = preparation.inputs(dataset, [max(range(len(texts)), key=lambda row: len(texts[row]))])
    if isinstance(inputs, Tensor):
        inputs = inputs.to(model.classifier.weight.dtype)
    try:
        extract_features(model, [inputs])
    except torch.OutOfMemoryError:
        raise
    except (ValueError, RuntimeError, IndexError, TypeError, AssertionError) as error:  # networks raise any of these
        raise ConfigError(
            f"{owner}.model: {name} does not fit the inputs of {dataset.name}: {reason(error)}"
        ) from error
