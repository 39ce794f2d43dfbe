"""Causal language models of transformers and their tokenisers, from a folder, a hub id or a GGUF file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tpkd.errors import InputError, extra
from tpkd.models.encoder import loading

KIND = "hf"


def language_source(model: str) -> str:
    """The folder or hub id that a configuration's `hf:…` names.

    Example:
        >>> language_source("hf:folder/of/a/model")
        'folder/of/a/model'
    """
    kind, _, source = model.partition(":")
    if kind != KIND or not source:
        raise InputError(f"model: expected {KIND}:PATH_OR_ID of a causal language model, found {model!r}")
    return source


def load_language_model(source: str, gguf: str | None = None) -> nn.Module:
    """A causal language model in float32, in evaluation mode; of a GGUF file the weights are dequantised.

    Raises:
        InputError: one line that names the source.
    """
    with extra("text"):
        from transformers import AutoModelForCausalLM
    with loading(source):
        model: Any = AutoModelForCausalLM.from_pretrained(
            source, dtype=torch.float32, trust_remote_code=False, **_where(source, gguf)
        )
    if gguf is not None and getattr(model, "hf_quantizer", None) is not None:
        # The weights are dequantised, but transformers refuses to save a model that still has a quantiser.
        model.hf_quantizer.remove_quantization_config(model)
    found: nn.Module = model.eval()
    return found


def vocabulary_size(source: str, gguf: str | None = None) -> int:
    """The number of classes of a language model, from its configuration alone.

    Raises:
        InputError: one line that names the source.
    """
    with extra("text"):
        from transformers import AutoConfig
    with loading(source):
        found = AutoConfig.from_pretrained(source, trust_remote_code=False, **_where(source, gguf))
    return int(found.get_text_config().vocab_size)


def load_tokenizer(source: str, gguf: str | None = None) -> Any:
    """The tokeniser of a language model.

    Raises:
        InputError: one line that names the source.
    """
    with extra("text"):
        from transformers import AutoTokenizer
    with loading(source):
        tokenizer: Any = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **_where(source, gguf))
    if not tokenizer.is_fast:
        raise InputError(f"hf:{source}: expected a tokenizer with a tokenizer.json, found a slow one")
    return tokenizer


def _where(source: str, gguf: str | None) -> dict[str, Any]:
    local: dict[str, Any] = {"local_files_only": Path(source).is_dir()}
    if gguf is None:
        return local
    if not (Path(source) / gguf).is_file():
        raise InputError(f"gguf: expected a file in {source}, found none named {gguf!r}")
    with extra("tokens"):
        import gguf as _reader  # noqa: F401
    return local | {"gguf_file": gguf}


def keep_layers(model: nn.Module, layers: Sequence[int]) -> nn.Module:
    """The same network with some of its layers, in their order, as the start of a smaller student; changed in place.

    Args:
        model: with its layers in `model.model.layers`, as Llama, Qwen, Mistral and Gemma have them.
        layers: which to keep, counted from 0, rising.

    Raises:
        InputError: it has no such layers, or they are not in order.
    """
    body: Any = getattr(model, "model", None)
    found = getattr(body, "layers", None)
    if not isinstance(found, nn.ModuleList):
        raise InputError(f"layers: expected a model with a list model.layers, found {type(model).__name__}")
    if list(layers) != sorted(set(layers)) or not layers or layers[0] < 0 or layers[-1] >= len(found):
        raise InputError(f"layers: expected rising numbers from 0 to {len(found) - 1}, found {list(layers)}")
    body.layers = nn.ModuleList(found[layer] for layer in layers)
    for number, layer in enumerate(body.layers):
        attention = getattr(layer, "self_attn", None)
        if attention is not None and hasattr(attention, "layer_idx"):
            attention.layer_idx = number  # where a layer finds its keys and values while text is generated
    configuration: Any = model.config
    configuration.num_hidden_layers = len(body.layers)
    if getattr(configuration, "layer_types", None):
        configuration.layer_types = [configuration.layer_types[layer] for layer in layers]
    return model
