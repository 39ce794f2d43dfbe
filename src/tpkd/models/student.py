"""The initial student of a configuration."""

from pathlib import Path

import torch
from torch import nn

from tpkd.class_names import check_class_names, recorded_names
from tpkd.config.loading import expand_data, keyed
from tpkd.config.schema import RunConfig, StudentConfig
from tpkd.data.batches import PlainBatches, load_batches
from tpkd.data.dataset import Dataset
from tpkd.data.slicing import to_device
from tpkd.errors import InputError
from tpkd.models.checks import check_inputs, check_student_classes
from tpkd.models.classifier import Classifier, extract_features
from tpkd.models.heads import fit_probe, widened
from tpkd.models.preparation import model_spec, student_preparation
from tpkd.models.registry import build_model
from tpkd.models.weights import load_weights, save_weights

PROBE_NAME = "probe.safetensors"


def build_student(
    config: RunConfig, dataset: Dataset, *, directory: Path | None = None, device: torch.device | None = None
) -> Classifier:
    """The initial student: a pure function of its section of the configuration and the files it names.

    A probe is fitted once on the training samples and saved with the run, so that a resumed run starts from the same
    bits.
    """
    student = config.student
    with keyed("student"):
        check_student_classes(student, dataset)
        model = build_model(model_spec(student, dataset.num_classes, dataset))
        check_student_classes(student, dataset, model)
    check_inputs("student", student.model, model, dataset, student_preparation(config, dataset))
    with keyed("student"):
        if student.head == "probe":
            model.replace_classifier(_probe(config, model, dataset, directory, device))
        model.check_layers(student.layers)
    return model


def _probe(
    config: RunConfig, model: Classifier, dataset: Dataset, directory: Path | None, device: torch.device | None
) -> nn.Linear:
    path = _probe_path(config.student, directory)
    if path is not None and path.exists():
        probe = nn.Linear(model.feature_size, dataset.num_classes)
        found_in = "probe_file" if config.student.probe_file else "the probe of this run"
        check_class_names(
            recorded_names(path), dataset.class_names, found_in=f"{found_in} {path}", expected_in=dataset.name
        )
        load_weights(probe, path)
        return probe
    if not dataset.labelled:
        problem = "expected own or random, or a probe_file: a probe is fitted to labels, and the training part has none"
        raise InputError(f"head: {problem}")
    preparation, device = student_preparation(config, dataset), device or torch.device("cpu")
    batches = PlainBatches(dataset, preparation, batch_size=config.evaluation.batch_size)
    inputs = (to_device(batch.inputs, device) for batch in load_batches(batches, workers=config.workers))
    features = extract_features(model.to(device), inputs)[:, : model.probe_size]
    model.cpu()
    probe = fit_probe(features, torch.from_numpy(dataset.labels), dataset.num_classes, C=config.student.probe_c)
    probe = widened(probe, model.feature_size)
    if path is not None:
        save_weights(probe, path, dataset.class_names)
    return probe


def _probe_path(student: StudentConfig, directory: Path | None) -> Path | None:
    if student.probe_file is not None:
        return Path(expand_data(student.probe_file))
    return None if directory is None else directory / PROBE_NAME
