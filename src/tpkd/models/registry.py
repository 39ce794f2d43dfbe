"""Models by name: `builtin:mlp`, `resnet20`, `efficientnet-lite0` or `bert`, `timm:NAME`, `hf:PATH_OR_ID`."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from tpkd.class_names import recorded_names
from tpkd.errors import InputError, did_you_mean
from tpkd.models.classifier import Classifier
from tpkd.models.efficientnet import LITE_SIZES, PUBLISHED_CLASSES, EfficientNetLite, published_weights
from tpkd.models.encoder import build_bert, load_encoder
from tpkd.models.heads import random_head
from tpkd.models.mlp import MLP
from tpkd.models.options import (
    WORDS,
    BertOptions,
    EfficientNetOptions,
    HFOptions,
    MLPOptions,
    ResNetOptions,
    TimmOptions,
    read_options,
)
from tpkd.models.resnet import CifarResNet
from tpkd.models.spec import ModelSpec
from tpkd.models.tokens import HashedWords, PretrainedTokenizer, TextEncoding, Tokenizer
from tpkd.models.vision import NO_WEIGHTS, build_timm, check_timm
from tpkd.models.weights import load_weights

HEADS = ("own", "random")
OWN = "python"
"""The name of a network that a program brings along."""
_KNOWN = ("builtin:mlp", "builtin:bert", *(f"builtin:resnet{depth}" for depth in (8, 20, 32, 44, 56, 110)), *LITE_SIZES)
_RESNET = re.compile(r"builtin:resnet(\d{1,3})")
_EXPECTED = (
    "builtin:mlp, builtin:resnet8 (20, 32, 44, 56, 110), builtin:efficientnet-lite0 (to lite4), builtin:bert, "
    "timm:NAME or hf:PATH_OR_ID"
)


def build_model(spec: ModelSpec) -> Classifier:
    """Build a classifier, on the CPU and in float32; a pure function of its spec and the files it names.

    The global random state is not touched.

    Raises:
        InputError: an unknown name or option, weights that do not fit, a library that is not installed.

    Example:
        >>> model = build_model(ModelSpec("builtin:resnet20", num_classes=100))
        >>> output = model.outputs(torch.zeros(2, 3, 32, 32), layers=(1, 3))
        >>> output.logits.shape, output.features.shape, [layer.shape[1] for layer in output.layer_features]
        (torch.Size([2, 100]), torch.Size([2, 64]), [16, 64])
    """
    if spec.num_classes < 2:
        raise InputError(f"num_classes: expected at least 2, found {spec.num_classes}")
    if spec.head not in HEADS:
        raise InputError(f"head: expected one of {', '.join(HEADS)}, found {spec.head!r}")
    with _seeded(spec.seed):
        model = _build(spec)
    if spec.weights is not None:
        skip = model.head_names if spec.head == "random" else ()
        load_weights(model, spec.weights, skip=skip, weight_map=spec.weight_map)
        model.untrained = None
        model.class_names = recorded_names(spec.weights)
    if spec.head == "random":
        model.replace_classifier(random_head(model.feature_size, spec.num_classes, spec.seed))
        model.untrained = "its head is random"
    return model


def check_model(name: str) -> None:
    """Refuse an unknown model name and suggest the closest known one, without building or reading anything.

    Example:
        >>> check_model("builtin:resnet20")
    """
    if name == OWN:
        problem = f"{OWN!r} is a network that a program gives to tpkd.training.fit"
        raise InputError(f"model: {problem}, and cannot be built without that program")
    kind, _, rest = name.partition(":")
    depth = _resnet_depth(name)
    if (
        name in ("builtin:mlp", "builtin:bert", *LITE_SIZES)
        or (depth >= 8 and depth % 6 == 2)
        or (kind == "hf" and rest)
    ):
        return
    if kind != "timm" or not rest:
        raise InputError(f"model {name!r}: unknown, expected {_EXPECTED}{did_you_mean(name, _KNOWN)}")
    check_timm(rest)


def _resnet_depth(name: str) -> int:
    found = _RESNET.fullmatch(name)
    return int(found[1]) if found else 0


def _build(spec: ModelSpec) -> Classifier:
    check_model(spec.name)
    kind, _, rest = spec.name.partition(":")
    if kind == "timm":
        return build_timm(rest, spec.num_classes, read_options(TimmOptions, spec.options))
    if kind == "hf":
        options = read_options(HFOptions, spec.options)
        return load_encoder(rest, spec.num_classes, options, spec.seed, keep_head=spec.head == "own")
    if spec.name in LITE_SIZES:
        return _build_lite(spec)
    model: Classifier
    if rest == "mlp":
        model = MLP(spec.num_classes, read_options(MLPOptions, spec.options))
    elif rest == "bert":
        model = build_bert(spec.num_classes, read_options(BertOptions, spec.options), spec.seed)
    else:
        read_options(ResNetOptions, spec.options)
        model = CifarResNet(spec.num_classes, _resnet_depth(spec.name))
    model.untrained = NO_WEIGHTS
    return model


def _build_lite(spec: ModelSpec) -> Classifier:
    options, size = read_options(EfficientNetOptions, spec.options), LITE_SIZES[spec.name]
    if not options.pretrained or spec.weights is not None:
        model = EfficientNetLite(spec.num_classes, size, options)
        model.untrained = NO_WEIGHTS
        return model
    model = EfficientNetLite(PUBLISHED_CLASSES, size, options)
    load_weights(model, published_weights(size))
    if spec.num_classes != PUBLISHED_CLASSES:
        model.replace_classifier(random_head(model.feature_size, spec.num_classes, spec.seed))
        model.untrained = f"the published weights are for {PUBLISHED_CLASSES} classes, and the head is random"
    return model


def encoder_for(
    name: str, *, options: Mapping[str, Any] | None = None, max_length: int = 128, padding: str = "max_length"
) -> TextEncoding:
    """What turns texts into the inputs of a text model.

    Paper: appendix E.1, text: maximum length 128 with fixed padding.

    Args:
        name: the model, `builtin:bert` or `hf:PATH_OR_ID`.
        options: the options the model is built with; `tokenizer` names another source of the tokenizer.
        max_length: longer texts are cut.
        padding: `"max_length"` (fixed) or `"longest"` of each call.

    Example:
        >>> encode = encoder_for("builtin:bert", padding="longest")
        >>> encode(["what is my balance", "hello"])["input_ids"].shape
        torch.Size([2, 6])
    """
    if name == "builtin:bert":
        bert = read_options(BertOptions, options)
        if max_length > bert.max_positions:
            raise InputError(f"max_length: expected at most max_positions {bert.max_positions}, found {max_length}")
        tokenizer: Tokenizer = (
            HashedWords(bert.vocab_size) if bert.tokenizer == WORDS else PretrainedTokenizer(bert.tokenizer)
        )
        if tokenizer.vocab_size > bert.vocab_size:
            raise InputError(f"vocab_size: expected at least the tokenizer's {tokenizer.vocab_size}")
    elif name.startswith("hf:"):
        tokenizer = PretrainedTokenizer(read_options(HFOptions, options).tokenizer or name.removeprefix("hf:"))
    else:
        raise InputError(f"model {name!r}: reads no text, expected builtin:bert or hf:PATH_OR_ID")
    return TextEncoding(tokenizer, max_length, padding)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    # Networks are drawn on the CPU: the generators of accelerators are neither needed nor touched.
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        yield
