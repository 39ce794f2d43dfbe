"""Text encoders of the transformers library, built from a shape or loaded from a folder, with a linear head."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, float32, nn

from tpkd.class_names import names_from_id2label
from tpkd.errors import InputError, extra, some
from tpkd.files import file_size
from tpkd.hub import hub_answers, hub_or_cache
from tpkd.models.classifier import Classifier, Inputs, ModelOutput
from tpkd.models.heads import random_head
from tpkd.models.options import BertOptions, HFOptions

_NO_HUB = "the hub does not answer, and no copy is in its cache; where there is a network, save it with save_pretrained"
_DROPOUTS = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
    *("dropout", "attention_dropout", "seq_classif_dropout"),  # DistilBERT's names for the same settings
)


class TextClassifier(Classifier):
    """An encoder, its pooled output, dropout and a linear head: a sequence classifier as in the BERT paper."""

    def __init__(self, network: nn.Module, head: nn.Linear, *, pooling: str) -> None:
        """Put a head on an encoder; `pooling` is `"pooler"`, or `"mean"` over the tokens of the mask."""
        super().__init__()
        config: Any = network.config
        self.network = network
        self.dropout = nn.Dropout(_head_dropout(config))
        self.head = head
        self.pooling = pooling
        self.max_positions: int | None = getattr(config, "max_position_embeddings", None)
        self.layer_sizes = (config.hidden_size,) * (config.num_hidden_layers + 1)

    @property
    def classifier(self) -> nn.Linear:
        """The head."""
        return self.head

    def _set_classifier(self, linear: nn.Linear) -> None:
        self.head = linear

    def parameter_depths(self) -> dict[str, int]:
        """How many layers each parameter is away from the head; encoders that share weights between layers have none.

        Raises:
            InputError: its layers cannot be told apart.
        """
        depths, expected = super().parameter_depths(), len(self.layer_sizes) - 1
        found = max(depths.values()) - 1
        if found != expected:
            kind = type(self.network).__name__
            raise InputError(f"expected {expected} layers with weights of their own in {kind}, found {found}")
        return depths

    def _outputs(self, inputs: Inputs, layers: Sequence[int]) -> ModelOutput:
        if isinstance(inputs, Tensor) or not {"input_ids", "attention_mask"} <= inputs.keys():
            found = "a tensor" if isinstance(inputs, Tensor) else ", ".join(inputs)
            raise ValueError(f"inputs: expected input_ids and attention_mask, got {found}")
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        if self.max_positions is not None and ids.shape[1] > self.max_positions:
            raise ValueError(f"inputs: expected at most {self.max_positions} tokens, got {ids.shape[1]}")
        result = self.network(input_ids=ids, attention_mask=mask, output_hidden_states=bool(layers))
        pooled = result.pooler_output if self.pooling == "pooler" else masked_mean(result.last_hidden_state, mask)
        features = self.dropout(pooled)
        layer_features = tuple(masked_mean(result.hidden_states[layer], mask) for layer in layers)
        return ModelOutput(self.head(features), features, layer_features)


def masked_mean(states: Float[Tensor, "N T D"], mask: Int[Tensor, "N T"]) -> Float[Tensor, "N D"]:
    """The mean over the unmasked positions; every row has at least one.

    Example:
        >>> import torch
        >>> masked_mean(torch.tensor([[[1.0], [3.0], [100.0]]]), torch.tensor([[1, 1, 0]]))
        tensor([[2.]])
    """
    weights = mask.to(states.dtype).unsqueeze(-1)
    return (states * weights).sum(1) / weights.sum(1)


def build_bert(num_classes: int, options: BertOptions, seed: int) -> TextClassifier:
    """A BERT of any size with random weights and the shared random head."""
    with extra("text"):
        from transformers import BertConfig, BertModel
    config = BertConfig(
        vocab_size=options.vocab_size,
        hidden_size=options.hidden_size,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        intermediate_size=options.intermediate_size or 4 * options.hidden_size,
        max_position_embeddings=options.max_positions,
        hidden_dropout_prob=options.dropout,
        attention_probs_dropout_prob=options.dropout,
    )
    network = BertModel(config, add_pooling_layer=options.pooling == "pooler")
    return TextClassifier(network, random_head(options.hidden_size, num_classes, seed), pooling=options.pooling)


def load_encoder(source: str, num_classes: int, options: HFOptions, seed: int, *, keep_head: bool) -> TextClassifier:
    """An encoder from a transformers folder or hub id, its weights in float32, never from a pickle.

    A sequence classifier keeps its own head if `keep_head` is set and the head is one linear layer on the pooler;
    anything else gets the shared random head.
    """
    with extra("text"):
        import transformers
    settings: dict[str, Any] = {"trust_remote_code": False, "local_files_only": Path(source).is_dir()}
    with loading(source):
        config = transformers.AutoConfig.from_pretrained(source, **settings)
        config.return_dict = True  # outputs are read by name
        _check_sizes(config)
    for name in _DROPOUTS:
        if options.dropout is not None and hasattr(config, name):
            setattr(config, name, options.dropout)
    own_head = keep_head and any(name.endswith("ForSequenceClassification") for name in config.architectures or ())
    kind = transformers.AutoModelForSequenceClassification if own_head else transformers.AutoModel
    with loading(source):
        model, report = kind.from_pretrained(
            source, config=config, dtype=float32, use_safetensors=True, output_loading_info=True, **settings
        )
    network = model.base_model
    _settle_pooler(source, network, options.pooling, sorted(report["missing_keys"]))
    _refuse_left_over(source, network, sorted(report["unexpected_keys"]))
    head = _own_head(source, model, num_classes, options) if own_head else None
    with loading(source):  # a rate of its configuration may be none
        classifier = TextClassifier(
            network, head or random_head(config.hidden_size, num_classes, seed), pooling=options.pooling
        )
    classifier.untrained = None if own_head else "its head is random, because it brings no classifier of its own"
    classifier.class_names = names_from_id2label(config.id2label) if own_head else None
    return classifier


def _check_sizes(config: Any) -> None:
    """Refuse values that no library checks; called where a ValueError becomes one line."""
    architectures = config.architectures or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise ValueError(f"architectures: expected a list of names, found {architectures!r}")
    for name in ("hidden_size", "num_hidden_layers"):
        value = getattr(config, name, None)
        if type(value) is not int or value < 1:
            raise ValueError(f"{name}: expected a number of at least 1 in its config.json, found {value!r}")


def _refuse_left_over(source: str, network: nn.Module, unexpected: list[str]) -> None:
    """Refuse encoder weights that its configuration has no place for, such as those of an extra layer."""
    parts = {name for name, _ in network.named_children()}
    inside = [name.removeprefix(f"{getattr(network, 'base_model_prefix', '')}.") for name in unexpected]
    left = [name for name in inside if name.split(".")[0] in parts - {"pooler"} and not name.endswith("position_ids")]
    if left:
        raise InputError(f"hf:{source}: its config.json has no place for the weights {some(left)}")


def _settle_pooler(source: str, network: Any, pooling: str, missing: list[str]) -> None:
    """Drop an unused pooler; refuse a pooler, or anything else, that has no weights."""
    pooler = getattr(network, "pooler", None)
    if pooling == "mean":
        missing = [name for name in missing if "pooler." not in name]
        if pooler is not None:
            network.pooler = None  # it would never be trained, and data parallelism refuses unused parameters
    elif pooler is None or any("pooler." in name for name in missing):
        raise InputError(f"hf:{source}: has no weights of a pooler; say pooling: mean")
    if missing:
        raise InputError(f"hf:{source}: has no weights for {', '.join(missing[:3])}")


def _own_head(source: str, model: nn.Module, num_classes: int, options: HFOptions) -> nn.Linear:
    """The head of a sequence classifier, if it means the same with our pooling."""
    head = getattr(model, "classifier", None)
    if not isinstance(head, nn.Linear) or options.pooling != "pooler":
        raise InputError(
            f"hf:{source}: its own head is not a linear layer on the {options.pooling} output; say head: random"
        )
    if head.out_features != num_classes:
        raise InputError(
            f"hf:{source}: expected a head of {num_classes} classes, found {head.out_features}; say head: random"
        )
    return head


def _head_dropout(config: Any) -> float:
    for name in ("classifier_dropout", "seq_classif_dropout", "hidden_dropout_prob"):
        rate = getattr(config, name, None)
        if rate is not None:
            return float(rate)
    return 0.0


@contextmanager
def loading(source: str) -> Iterator[None]:
    """Load from a transformers folder or hub id without log output; errors become one line that names the source.

    Any exception raised inside is blamed on the folder, so put only calls of the library inside.
    """
    from transformers.utils import logging

    if source.startswith((".", "/", "~")) and not Path(source).exists():
        raise InputError(f"hf:{source}: cannot be read: No such file or directory")  # it would be mistaken for a hub id
    for path in sorted(Path(source).iterdir()) if Path(source).is_dir() else ():
        if path.exists() and not path.is_dir():
            file_size(path)  # of a regular file, links followed; the library would wait for a pipe
    verbosity, progress, local = logging.get_verbosity(), logging.is_progress_bar_enabled(), Path(source).exists()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with nullcontext() if local else hub_or_cache():
            yield
    except Exception as error:  # a bad config.json can fail anywhere in the library
        problem = _reason(error) if local or hub_answers() else _NO_HUB
        raise InputError(f"hf:{source}: cannot be loaded: {problem}") from error
    finally:
        logging.set_verbosity(verbosity)
        if progress:
            logging.enable_progress_bar()


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any("ignore_mismatched_sizes" in line for line in lines):  # it points to a report that is not printed
        return "the shapes of its weights are not those that its config.json says"
    if not lines:
        return type(error).__name__
    if lines[0].endswith(":") and len(lines) > 1:  # the second line says what the first announces
        return f"{lines[0]} {lines[1]}"
    # These say nothing without their type.
    plain = isinstance(error, (OSError, ValueError, RuntimeError))
    return lines[0] if plain else f"{type(error).__name__}: {lines[0]}"
