"""From a section of the configuration to the spec of its network and the preparation of its inputs."""

from typing import Any

from tpkd.config.inputs import ViewsConfig
from tpkd.config.loading import ConfigError, expand_data, keyed
from tpkd.config.schema import RunConfig, StudentConfig, TeacherConfig
from tpkd.data.batches import Preparation
from tpkd.data.dataset import Dataset
from tpkd.data.views import IDENTITY_VIEW, ViewRecipe
from tpkd.models.registry import encoder_for
from tpkd.models.spec import ModelSpec


def model_spec(section: StudentConfig | TeacherConfig, num_classes: int, dataset: Dataset | None = None) -> ModelSpec:
    """The spec of a section's network, with `$TPKD_DATA` expanded in paths; a probe starts as a random head.

    On vectors, `builtin:mlp` without an `input_size` takes that of the data set.
    """
    options = {key: expand_data(value) if isinstance(value, str) else value for key, value in section.options.items()}
    if section.model == "builtin:mlp" and dataset is not None and dataset.kind == "vector":
        options.setdefault("input_size", dataset.input_size)
    weights = None if section.weights is None else expand_data(section.weights)
    head = "random" if section.head == "probe" else section.head
    name = expand_data(str(section.model))
    return ModelSpec(name, num_classes, options, weights, head, section.seed, section.weight_map)


def student_preparation(config: RunConfig, dataset: Dataset) -> Preparation:
    """The preparation of the student's inputs: views of images, tokens of texts."""
    return build_preparation(config, dataset, config.student, config.views)


def build_preparation(
    config: RunConfig, dataset: Dataset, section: StudentConfig | TeacherConfig, views: ViewsConfig
) -> Preparation:
    """The preparation of inputs for a section's network; the views apply to images."""
    if dataset.kind == "image":
        with keyed("views"):
            # What is mixed is no part of a view: a cache of unmixed views serves runs that mix them.
            return Preparation(ViewRecipe(**views.model_dump(exclude={"mixup", "cutmix"})))
    for name in ("mixup", "cutmix"):
        if getattr(views, name):
            problem = f"expected 0 for {dataset.kind} data, found {getattr(views, name)}: only images are mixed"
            raise ConfigError(f"views.{name}: {problem}")
    if views != ViewsConfig():
        raise ConfigError(f"views: expected none for {dataset.kind} data")
    if dataset.kind == "vector":
        return Preparation(IDENTITY_VIEW)
    with keyed("student.model" if section is config.student else "teacher.model"):
        spec = model_spec(section, dataset.num_classes)
        return Preparation(IDENTITY_VIEW, encoder_for(spec.name, options=spec.options, **config.text.model_dump()))


def preprocessing(dataset: Dataset, preparation: Preparation) -> dict[str, Any]:
    """A preparation as plain data, for the recipe of a cache."""
    if dataset.kind == "image":
        return preparation.recipe.to_dict()
    describe = getattr(preparation.tokenize, "to_dict", dict)
    plain: dict[str, Any] = describe()
    return plain
