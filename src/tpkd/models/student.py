"""The student of a configuration at its start."""

from pathlib import Path

import torch
from torch import Tensor, nn

from tpkd.class_names import check_class_names, recorded_names
from tpkd.config.loading import ConfigError, expand_data, keyed
from tpkd.config.schema import RunConfig, StudentConfig
from tpkd.data.batches import PlainBatches, Preparation, load_batches
from tpkd.data.dataset import Dataset
from tpkd.data.slicing import to_device
from tpkd.errors import InputError
from tpkd.models.classes import check_student_classes
from tpkd.models.classifier import Classifier, extract_features
from tpkd.models.heads import fit_probe
from tpkd.models.preparation import expand_options, student_preparation
from tpkd.models.registry import build_model
from tpkd.models.weights import load_weights, save_weights

PROBE_NAME = "probe.safetensors"


def build_student(
    config: RunConfig, dataset: Dataset, *, directory: Path | None = None, device: torch.device | None = None
) -> Classifier:
    """The student at its start: a pure function of its section of the configuration and the files it names.

    A probe is fitted on the training samples once and kept beside the run, so that a run that continues starts from
    the same bits.
    """
    student = config.student
    with keyed("student"):
        check_student_classes(student, dataset)
        model = build_model(
            expand_data(student.model),
            num_classes=dataset.num_classes,
            options=expand_options(student.options),
            weights=None if student.weights is None else expand_data(student.weights),
            head="random" if student.head == "probe" else student.head,
            seed=student.seed,
        )
        check_student_classes(student, dataset, model)
    check_inputs("student", student.model, model, dataset, student_preparation(config, dataset))
    with keyed("student"):
        if student.head == "probe":
            model.replace_classifier(_probe(config, model, dataset, directory, device))
        check_layers(model, student.layers)
    return model


def check_inputs(owner: str, name: str, model: Classifier, dataset: Dataset, preparation: Preparation) -> None:
    """Try a network on one sample, of texts the longest: what does not fit is said before anything is computed.

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
    except (ValueError, RuntimeError, IndexError, TypeError, AssertionError) as error:  # networks say it as they like
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"{owner}.model: {name} does not fit the inputs of {dataset.name}: {reason}") from error


def check_layers(model: Classifier, layers: tuple[int, ...]) -> None:
    """Refuse layers that a network does not have."""
    count = len(model.layer_sizes)
    if any(not -count <= layer < count for layer in layers):
        raise InputError(f"layers: expected layers below {count}, found {list(layers)}")


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
    preparation, device = student_preparation(config, dataset), device or torch.device("cpu")
    batches = PlainBatches(dataset, preparation, batch_size=config.evaluation.batch_size)
    inputs = (to_device(batch.inputs, device) for batch in load_batches(batches, workers=config.workers))
    features = extract_features(model.to(device), inputs)
    model.cpu()
    probe = fit_probe(features, torch.from_numpy(dataset.labels), dataset.num_classes, C=config.student.probe_c)
    # A file keeps no strides, and a matrix product of other strides rounds differently.
    probe.weight = nn.Parameter(probe.weight.detach().contiguous())
    if path is not None:
        save_weights(probe, path, dataset.class_names)
    return probe


def _probe_path(student: StudentConfig, directory: Path | None) -> Path | None:
    if student.probe_file is not None:
        return Path(expand_data(student.probe_file))
    return None if directory is None else directory / PROBE_NAME
