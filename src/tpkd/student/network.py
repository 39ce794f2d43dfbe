"""The network and the preparation of a recipe, built without any weights but the student's own."""

from pathlib import Path
from typing import Any

import torch
from torch import float32, nn

from tpkd.config.loading import expand_data
from tpkd.data.batches import Preparation
from tpkd.data.views import IDENTITY_VIEW
from tpkd.errors import InputError, extra
from tpkd.models.classifier import Classifier
from tpkd.models.encoder import TextClassifier, loading
from tpkd.models.options import WORDS, BertOptions, HFOptions, read_options
from tpkd.models.registry import build_model, encoder_for
from tpkd.models.spec import ModelSpec
from tpkd.student.recipe import StudentRecipe

FILES_NAME = "network"
"""Sub-folder of an exported student with what transformers needs: configuration and tokenizer, no weights."""


def build_network(recipe: StudentRecipe, folder: Path | None = None) -> Classifier:
    """The network of a recipe with random weights; files of the start, such as `student.weights`, are not needed.

    Args:
        recipe: what to build.
        folder: an exported student, whose own copy of configuration and tokenizer is used.

    Raises:
        InputError: a library or folder that the architecture comes from is missing.
    """
    num_classes = len(recipe.class_names)
    if recipe.model.startswith("hf:"):
        return _build_encoder(recipe, encoder_source(recipe, folder))
    # Pretrained weights would be fetched only to be replaced.
    options = {key: value for key, value in recipe.options.items() if key != "pretrained"}
    head = "random" if recipe.new_head else "own"
    return build_model(ModelSpec(recipe.model, num_classes, options, head=head))


def build_preparation(recipe: StudentRecipe, folder: Path | None = None) -> Preparation:
    """What turns raw inputs into those of the network."""
    if recipe.kind != "text":
        return Preparation(recipe.views)
    options, source = dict(recipe.options), tokenizer_source(recipe, folder)
    if source is not None:
        options["tokenizer"] = source
    encode = encoder_for(recipe.model, options=options, max_length=recipe.max_length, padding=recipe.padding)
    return Preparation(IDENTITY_VIEW, encode)


def encoder_source(recipe: StudentRecipe, folder: Path | None) -> str:
    """The folder or hub id with the configuration of an `hf:` network."""
    return _exported(folder) or expand_data(recipe.model).removeprefix("hf:")


def tokenizer_source(recipe: StudentRecipe, folder: Path | None) -> str | None:
    """The folder or hub id of the tokenizer; None for hashed words, which need no file."""
    if exported := _exported(folder):
        return exported
    if recipe.model.startswith("hf:"):
        named = read_options(HFOptions, recipe.options).tokenizer
        return encoder_source(recipe, folder) if named is None else expand_data(named)
    named = read_options(BertOptions, recipe.options).tokenizer
    return None if named == WORDS else expand_data(named)


def _exported(folder: Path | None) -> str | None:
    files = None if folder is None else folder / FILES_NAME
    return str(files) if files is not None and files.is_dir() else None


def read_encoder_config(source: str) -> Any:
    """The transformers configuration of a folder or hub id."""
    with extra("text"):
        from transformers import AutoConfig
    with loading(source):
        return AutoConfig.from_pretrained(source, trust_remote_code=False, local_files_only=Path(source).is_dir())


def save_tokenizer(source: str, folder: Path, *, max_length: int) -> None:
    """Copy a tokenizer into a folder, with the length at which this student's texts are cut."""
    with extra("text"):
        from transformers import AutoTokenizer
    with loading(source):
        tokenizer: Any = AutoTokenizer.from_pretrained(
            source, trust_remote_code=False, local_files_only=Path(source).is_dir()
        )
        tokenizer.model_max_length = max_length
        tokenizer.save_pretrained(folder)


def _build_encoder(recipe: StudentRecipe, source: str) -> TextClassifier:
    with extra("text"):
        from transformers import AutoModel
    options, config = read_options(HFOptions, recipe.options), read_encoder_config(source)
    config.return_dict = True  # outputs are read by name
    with torch.random.fork_rng(devices=()), loading(source):
        network: Any = AutoModel.from_config(config, dtype=float32)
        head = nn.Linear(config.hidden_size, len(recipe.class_names))
    if options.pooling == "mean":
        network.pooler = None
    elif getattr(network, "pooler", None) is None:
        raise InputError(f"hf:{source}: expected a network with a pooler, as the run had, found none")
    return TextClassifier(network, head, pooling=options.pooling)
