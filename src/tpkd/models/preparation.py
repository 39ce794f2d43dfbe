"""How a network sees the data: views of images, tokens of texts."""

from typing import Any

from tpkd.config.loading import ConfigError, expand_data, keyed
from tpkd.config.schema import RunConfig, ViewsConfig
from tpkd.data.batches import Preparation
from tpkd.data.dataset import Dataset
from tpkd.data.views import IDENTITY_VIEW, ViewRecipe
from tpkd.models.registry import encoder_for


def student_preparation(config: RunConfig, dataset: Dataset) -> Preparation:
    """How the student sees the data."""
    return build_preparation(config, dataset, config.student.model, config.student.options, config.views, "student")


def build_preparation(
    config: RunConfig, dataset: Dataset, model: str, options: dict[str, Any], views: ViewsConfig, owner: str
) -> Preparation:
    """How a network of the configuration sees the data; `owner` is its section, for messages."""
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
            options=expand_options(options),
            max_length=config.text.max_length,
            padding=config.text.padding,
        )
    return Preparation(IDENTITY_VIEW, encoding)


def expand_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a model with `$TPKD_DATA` in its paths filled in."""
    return {key: expand_data(value) if isinstance(value, str) else value for key, value in options.items()}


def preprocessing(dataset: Dataset, preparation: Preparation) -> dict[str, Any]:
    """A preparation as plain data, for the recipe of a cache."""
    if dataset.kind == "image":
        return preparation.recipe.to_dict()
    describe = getattr(preparation.tokenize, "to_dict", dict)
    plain: dict[str, Any] = describe()
    return plain
