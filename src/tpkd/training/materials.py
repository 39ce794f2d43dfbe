"""What a configuration names, built: data, preparations, the student at its start, the teacher and its recipe."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tpkd.arrays import open_array
from tpkd.cache import CacheRecipe, CacheRows
from tpkd.cache.manifest import Manifest
from tpkd.class_names import check_class_names, read_class_names, recorded_names, to_metadata
from tpkd.config import ConfigError, RunConfig, StudentConfig, TeacherConfig, ViewsConfig, expand_data, keyed
from tpkd.data import (
    IDENTITY_VIEW,
    ClassMap,
    Dataset,
    ModelInputs,
    PlainBatches,
    Preparation,
    SampleBatch,
    SampleOrder,
    ViewRecipe,
    load_batches,
    load_dataset,
)
from tpkd.files import InputError, publish_bytes
from tpkd.models import (
    Classifier,
    build_model,
    encoder_for,
    extract_features,
    fit_probe,
    load_weights,
    model_source,
    weights_fingerprint,
)
from tpkd.training.classes import check_student_classes, check_teacher_classes
from tpkd.training.directory import PROBE_NAME

_LIMIT_SEED = 0


def load_data(config: RunConfig, split: str) -> Dataset:
    """The samples of a split; a limit takes the same ones every time, from all over the data set."""
    with keyed("data"):
        root = None if config.data.root is None else expand_data(config.data.root)
        name, allow_singletons = expand_data(config.data.name), config.data.allow_singletons
        dataset = load_dataset(name, split, root=root, allow_singletons=allow_singletons)
    limit = config.limit if split == "train" else config.evaluation.limit
    if limit is None or limit >= len(dataset):
        return dataset
    positions, _ = SampleOrder(_LIMIT_SEED, len(dataset)).positions(0, limit)
    return dataset.subset(np.sort(positions))


def student_preparation(config: RunConfig, dataset: Dataset) -> Preparation:
    """How the student sees the data."""
    return _preparation(config, dataset, config.student.model, config.student.options, config.views, "student")


def teacher_preparation(config: RunConfig, dataset: Dataset) -> Preparation:
    """How the teacher sees the data: as the student, but for its own views and tokenizer."""
    teacher = config.teacher
    if teacher is None or teacher.model is None:
        return student_preparation(config, dataset)
    return _preparation(config, dataset, teacher.model, teacher.options, teacher.views or config.views, "teacher")


def _preparation(
    config: RunConfig, dataset: Dataset, model: str, options: dict[str, Any], views: ViewsConfig, owner: str
) -> Preparation:
    if dataset.kind == "image":
        with keyed("views"):
            return Preparation(ViewRecipe(**views.model_dump()))
    if views != ViewsConfig():
        raise ConfigError(f"views: expected none for {dataset.kind} data")
    if dataset.kind == "vector":
        return Preparation(IDENTITY_VIEW)
    with keyed(f"{owner}.model"):
        encoding = encoder_for(
            expand_data(model),
            options=_expand_options(options),
            max_length=config.text.max_length,
            padding=config.text.padding,
        )
    return Preparation(IDENTITY_VIEW, encoding)


def _expand_options(options: dict[str, Any]) -> dict[str, Any]:
    return {key: expand_data(value) if isinstance(value, str) else value for key, value in options.items()}


def preprocessing(dataset: Dataset, preparation: Preparation) -> dict[str, Any]:
    """A preparation as plain data, for the recipe of a cache."""
    if dataset.kind == "image":
        return preparation.recipe.to_dict()
    describe = getattr(preparation.tokenize, "to_dict", dict)
    plain: dict[str, Any] = describe()
    return plain


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
            options=_expand_options(student.options),
            weights=None if student.weights is None else expand_data(student.weights),
            head="random" if student.head == "probe" else student.head,
            seed=student.seed,
        )
        check_student_classes(student, dataset, model)
    check_inputs("student", student.model, model, dataset, student_preparation(config, dataset))
    with keyed("student"):
        if student.head == "probe":
            model.replace_classifier(_probe(config, model, dataset, directory, device))
        _check_layers(model, student.layers)
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


def _check_layers(model: Classifier, layers: tuple[int, ...]) -> None:
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


def save_weights(module: nn.Module, path: Path, class_names: Sequence[str]) -> None:
    """Publish the state dict of a module as a safetensors file, with the names of its classes."""
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in module.state_dict().items()}
    publish_bytes(path, save(tensors, metadata=to_metadata(class_names)))


def class_map(config: RunConfig, dataset: Dataset) -> ClassMap | None:
    """From the teacher's classes to those of the data; None where they are the same."""
    teacher = config.teacher
    if teacher is None or (teacher.class_names is None and not teacher.rename):
        return None
    with keyed("teacher.class_names"):
        if teacher.class_names is None:
            raise InputError("expected the file of the teacher's classes, because rename speaks of them")
        names = read_class_names(expand_data(teacher.class_names))
        return ClassMap.from_names(names, dataset.class_names, teacher.rename)


def build_teacher(config: RunConfig, dataset: Dataset) -> Classifier:
    """The teacher in evaluation mode, its parameters frozen.

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
        model = build_model(**_network(teacher, dataset, mapping))
        check_teacher_classes(teacher, dataset, mapping, model)
        _check_layers(model, teacher.layers)
    _check_trained(teacher, model)
    return freeze(model)


def _network(teacher: TeacherConfig, dataset: Dataset, mapping: ClassMap | None) -> dict[str, Any]:
    """What decides the teacher's network, as `build_model` and `model_source` take it."""
    assert teacher.model is not None
    return {
        "name": expand_data(teacher.model),
        "num_classes": len(mapping.teacher_names) if mapping else dataset.num_classes,
        "options": _expand_options(teacher.options),
        "weights": None if teacher.weights is None else expand_data(teacher.weights),
        "head": teacher.head,
        "seed": teacher.seed,
    }


def _check_trained(teacher: TeacherConfig, model: Classifier) -> None:
    if model.untrained is not None and not teacher.untrained:
        raise ConfigError(
            f"teacher.weights: expected trained weights, found none for {teacher.model} ({model.untrained}); "
            "teacher.untrained: true asks for a teacher that knows nothing"
        )
    if teacher.untrained and model.untrained is None:
        raise ConfigError(f"teacher.untrained: expected false, because {teacher.model} brings trained weights")


def freeze(model: Classifier) -> Classifier:
    """A model that neither learns nor changes its statistics."""
    return model.eval().requires_grad_(False)


def layer_tensor(layer: int) -> str:
    """How a cache calls the pooled features of a layer."""
    return f"layer_{layer}"


def teacher_source(config: RunConfig, dataset: Dataset) -> str | None:
    """What the teacher would be built from, None where that is not known without building it."""
    teacher = config.teacher
    assert teacher is not None
    assert teacher.model is not None
    mapping = class_map(config, dataset)
    with keyed("teacher"):
        source = model_source(**_network(teacher, dataset, mapping))
    # A run that does not ask for an untrained teacher must not find its cache to be that of its own teacher.
    return f"{source}-untrained" if source and teacher.untrained else source


def known_recipe(config: RunConfig, dataset: Dataset, manifest: Manifest) -> CacheRecipe | None:
    """The recipe of the teacher's cache without building the teacher, None where the manifest does not say enough.

    Where the cache was computed by a network from the same files and settings, that network is the teacher.
    """
    assert config.teacher is not None
    widths = {name: manifest.recipe.tensors.get(name, 0) for name in map(layer_tensor, config.teacher.layers)}
    if manifest.model_source is None or 0 in widths.values():
        return None
    if manifest.model_source != teacher_source(config, dataset):
        return None
    with keyed("teacher"):
        check_teacher_classes(config.teacher, dataset, class_map(config, dataset))
    return _teacher_recipe(config, dataset, manifest.recipe.model_fingerprint, widths)


def teacher_recipe(config: RunConfig, dataset: Dataset, model: Classifier) -> CacheRecipe:
    """What decides the values of the teacher's cache."""
    assert config.teacher is not None
    widths = {layer_tensor(layer): model.layer_sizes[layer] for layer in config.teacher.layers}
    return _teacher_recipe(config, dataset, weights_fingerprint(model), widths)


def _teacher_recipe(config: RunConfig, dataset: Dataset, fingerprint: str, widths: dict[str, int]) -> CacheRecipe:
    assert config.teacher is not None
    mapping = class_map(config, dataset)
    return CacheRecipe(
        model_fingerprint=fingerprint,
        dataset_fingerprint=dataset.fingerprint,
        preprocessing=preprocessing(dataset, teacher_preparation(config, dataset)),
        class_map=mapping.to_dict() if mapping else None,
        num_classes=dataset.num_classes,
        dtype=config.teacher.cache_dtype,
        tensors=widths,
        class_names=dataset.class_names,
    )


def initial_recipe(config: RunConfig, dataset: Dataset, model: Classifier) -> CacheRecipe:
    """What decides the values of the cache of the student at its start."""
    return CacheRecipe(
        model_fingerprint=weights_fingerprint(model),
        dataset_fingerprint=dataset.fingerprint,
        preprocessing=preprocessing(dataset, student_preparation(config, dataset)),
        class_map=None,
        num_classes=dataset.num_classes,
        dtype=config.initial.cache_dtype,
        class_names=dataset.class_names,
    )


def cache_rows(dataset: Dataset, preparation: Preparation) -> CacheRows:
    """Every sample in every view."""
    return CacheRows.of_views(
        dataset.ids, preparation.num_views, lambda positions, views: preparation.inputs(dataset, positions, views)
    )


def given_test_logits(config: RunConfig, test: Dataset) -> Tensor:
    """The answers of a teacher without a model to the test split, `(N, K)` in float32, from `teacher.test_logits`."""
    assert config.teacher is not None
    assert config.teacher.test_logits is not None
    file = config.teacher.test_logits
    with keyed("teacher.test_logits"):
        array = open_array(expand_data(file))
        if tuple(array.shape) != (len(test), test.num_classes):
            raise InputError(f"{file}: expected shape ({len(test)}, {test.num_classes}), found {tuple(array.shape)}")
        check_class_names(array.class_names, test.class_names, found_in=file, expected_in=test.name)
        return torch.cat(list(array.blocks(len(test)))).float()


def to_device(inputs: ModelInputs, device: torch.device) -> ModelInputs:
    """Inputs where the network is."""
    if isinstance(inputs, dict):
        return {name: value.to(device, non_blocking=True) for name, value in inputs.items()}
    return inputs.to(device, non_blocking=True)


def sort_by_length(samples: SampleBatch) -> SampleBatch:
    """Texts from short to long: pieces of the batch then hold less padding, and their sum is the same."""
    if not isinstance(samples.inputs, dict):
        return samples
    order = samples.inputs["attention_mask"].sum(-1).argsort(stable=True)
    return SampleBatch(
        inputs={name: value[order] for name, value in samples.inputs.items()},
        labels=samples.labels[order],
        sample_ids=samples.sample_ids[order],
        view_ids=samples.view_ids[order],
        epochs=samples.epochs[order],
    )


def trim_padding(inputs: ModelInputs) -> ModelInputs:
    """Texts without the columns that all of them leave empty."""
    if not isinstance(inputs, dict):
        return inputs
    longest = int(inputs["attention_mask"].sum(-1).max())
    return {name: value[:, :longest] for name, value in inputs.items()}


def split_inputs(inputs: ModelInputs, bounds: list[int]) -> Iterator[ModelInputs]:
    """Inputs cut at the bounds, the first of which is 0 and the last their length."""
    for start, stop in pairwise(bounds):
        if isinstance(inputs, dict):
            yield {name: value[start:stop] for name, value in inputs.items()}
        else:
            yield inputs[start:stop]
