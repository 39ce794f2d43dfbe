"""The network of a configured teacher."""

from tpkd.class_names import read_class_names
from tpkd.config.loading import ConfigError, expand_data, keyed
from tpkd.config.schema import RunConfig, TeacherConfig
from tpkd.data.batches import Preparation
from tpkd.data.class_map import ClassMap
from tpkd.data.dataset import Dataset
from tpkd.errors import InputError
from tpkd.models.checks import check_inputs, check_teacher_classes
from tpkd.models.classifier import Classifier
from tpkd.models.preparation import build_preparation, model_spec, student_preparation
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec, model_source
from tpkd.teacher.teacher import OnlineTeacher


def teacher_preparation(config: RunConfig, dataset: Dataset) -> Preparation:
    """The teacher's preprocessing: the student's, except for its own views and tokenizer."""
    teacher = config.teacher
    if teacher is None or teacher.model is None:
        return student_preparation(config, dataset)
    return build_preparation(config, dataset, teacher, teacher.views or config.views)


def class_map(config: RunConfig, dataset: Dataset) -> ClassMap | None:
    """From the teacher's classes to those of the data; None where they are the same."""
    teacher = config.teacher
    if teacher is None or (teacher.class_names is None and not teacher.rename):
        return None
    with keyed("teacher.class_names"):
        if teacher.class_names is None:
            raise InputError("expected the file of the teacher's classes, because rename refers to them")
        names = read_class_names(expand_data(teacher.class_names))
        return ClassMap.from_names(names, dataset.class_names, teacher.rename)


def build_teacher(config: RunConfig, dataset: Dataset) -> OnlineTeacher:
    """The network of the teacher, tried on one sample, answering in the classes of the data.

    Raises:
        ConfigError: there is none, its weights were never trained and nothing asks for such a teacher, or a file of it
            is not as it must be.
    """
    teacher = config.teacher
    if teacher is None or teacher.model is None:
        raise ConfigError("teacher.model: missing, and there is nothing to compute its answers with")
    mapping = class_map(config, dataset)
    with keyed("teacher"):
        check_teacher_classes(teacher, dataset, mapping)
        model = build_model(_spec(teacher, dataset, mapping))
        check_teacher_classes(teacher, dataset, mapping, model)
        model.check_layers(teacher.layers)
    _check_trained(teacher, model)
    check_inputs("teacher", teacher.model, model, dataset, teacher_preparation(config, dataset))
    return OnlineTeacher(model, layers=teacher.layers, class_map=mapping)


def _spec(teacher: TeacherConfig, dataset: Dataset, mapping: ClassMap | None) -> ModelSpec:
    return model_spec(teacher, len(mapping.teacher_names) if mapping else dataset.num_classes, dataset)


def _check_trained(teacher: TeacherConfig, model: Classifier) -> None:
    if model.untrained is not None and not teacher.untrained:
        raise ConfigError(
            f"teacher.weights: expected trained weights, found none for {teacher.model} ({model.untrained}); "
            "teacher.untrained: true asks for a teacher that knows nothing"
        )
    if teacher.untrained and model.untrained is None:
        raise ConfigError(f"teacher.untrained: expected false, because {teacher.model} brings trained weights")


def teacher_source(config: RunConfig, dataset: Dataset) -> str | None:
    """What the teacher would be built from, None where that is not known without building it."""
    teacher = config.teacher
    assert teacher is not None
    assert teacher.model is not None
    mapping = class_map(config, dataset)
    with keyed("teacher"):
        source = model_source(_spec(teacher, dataset, mapping))
    # A run that does not ask for an untrained teacher must not find its cache to be that of its own teacher.
    return f"{source}-untrained" if source and teacher.untrained else source
