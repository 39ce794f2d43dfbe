"""One interface for every network: logits, penultimate features, layer features, and the linear layer between them."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tpkd.models.depth import block_depths

Inputs = Tensor | Mapping[str, Tensor]
"""Vectors `(N, D)`, images `(N, C, H, W)`, or for text `input_ids` and `attention_mask`, each `(N, T)`."""


@dataclass(frozen=True)
class ModelOutput:
    """The result of one forward pass of a classifier, attached to its graph."""

    logits: Float[Tensor, "N K"]
    features: Float[Tensor, "N D"]
    """The input of the classifier, after any dropout."""
    layer_features: tuple[Tensor, ...]
    """One feature `(N, D_i)` for each layer asked for, pooled over positions or pixels."""


class Classifier(nn.Module, ABC):
    """A network that ends in a linear layer; called like any module it returns logits.

    Layers are counted from 0, the input of the first one: the input of an MLP, the stem of a ResNet, the embeddings
    of an encoder. A network may offer none.
    """

    layer_sizes: tuple[int, ...] = ()
    """The width of each layer's pooled features."""
    untrained: str | None = None
    """Why its outputs are not those of trained weights; None if they are."""
    class_names: tuple[str, ...] | None = None
    """Class names in the order of the logits, if the network or its weights have them."""

    @property
    @abstractmethod
    def classifier(self) -> nn.Linear:
        """The last layer: features in, logits out."""

    @abstractmethod
    def _set_classifier(self, linear: nn.Linear) -> None: ...

    @abstractmethod
    def _outputs(self, inputs: Inputs, layers: Sequence[int]) -> ModelOutput: ...

    @property
    def feature_size(self) -> int:
        """D, the width of the penultimate features."""
        return self.classifier.in_features

    @property
    def probe_size(self) -> int:
        """How many of the features, from the first on, a probe is fitted to; the others get weight 0 from it."""
        return self.feature_size

    @property
    def num_classes(self) -> int:
        """K, the number of logits."""
        return self.classifier.out_features

    @property
    def has_linear_head(self) -> bool:
        """Whether the logits are exactly `classifier(features)`, which exact head updates and second heads rely on."""
        return True

    @property
    def head_names(self) -> frozenset[str]:
        """Names in the state dict that depend on the classes."""
        return parameter_names(self, (self.classifier,))

    def parameter_depths(self) -> dict[str, int]:
        """How many layers each parameter is away from the head, whose own are 0.

        Raises:
            InputError: its layers cannot be told apart.
        """
        return block_depths(self, self.head_names)

    def heads_without(self, names: Collection[str]) -> dict[str, str]:
        """Parameters of optional heads that are missing from weights with these names.

        Returns:
            Name in the state dict -> the head it belongs to.
        """
        return {}

    def drop_heads(self, heads: Iterable[str]) -> None:
        """Remove heads that `heads_without` returned."""

    def replace_classifier(self, linear: nn.Linear) -> None:
        """Replace the classifier by another linear layer, possibly with a different number of classes."""
        if linear.in_features != self.feature_size:
            raise ValueError(f"linear: expected {self.feature_size} input features, got {linear.in_features}")
        current = self.classifier.weight
        self.class_names = None
        self._set_classifier(linear.to(device=current.device, dtype=current.dtype))

    def forward(self, inputs: Inputs) -> Float[Tensor, "N K"]:
        """Logits."""
        return self.outputs(inputs).logits

    def outputs(self, inputs: Inputs, layers: Sequence[int] = ()) -> ModelOutput:
        """Logits, penultimate features and the pooled features of the layers asked for, from one forward pass."""
        self.check_layers(layers)
        return self._outputs(inputs, layers)

    def check_layers(self, layers: Sequence[int]) -> None:
        """Refuse layers that the network does not have."""
        count = len(self.layer_sizes)
        for layer in layers:
            if not -count <= layer < count:
                offered = f"layers 0 to {count - 1}" if count else "none, because this network offers no layer features"
                raise ValueError(f"layers: expected {offered}, got {layer}")


def parameter_names(module: nn.Module, parts: Iterable[nn.Module]) -> frozenset[str]:
    """Names in the state dict of a module that belong to some of its parts."""
    wanted = {id(part) for part in parts}
    return frozenset(
        f"{name}.{own}" for name, part in module.named_modules() if id(part) in wanted for own in part.state_dict()
    )


def tensor_inputs(inputs: Inputs) -> Tensor:
    """The inputs of a network that takes one tensor."""
    if not isinstance(inputs, Tensor):
        raise ValueError(f"inputs: expected a tensor, got {type(inputs).__name__} with {', '.join(inputs)}")
    return inputs


@torch.no_grad()
def extract_features(model: Classifier, batches: Iterable[Inputs]) -> Float[Tensor, "N D"]:
    """Penultimate features of many batches, in evaluation mode and without a graph.

    The train/eval mode of every module is restored.

    Returns:
        The features of all rows on the CPU, in order.

    Example:
        >>> from tpkd.models.registry import ModelSpec, build_model
        >>> model = build_model(ModelSpec("builtin:mlp", 3, options={"input_size": 4, "hidden": [8]}))
        >>> extract_features(model, [torch.zeros(2, 4), torch.zeros(1, 4)]).shape
        torch.Size([3, 8])
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        return torch.cat([model.outputs(batch).features.cpu() for batch in batches])
    finally:
        for module in training:
            module.training = True
