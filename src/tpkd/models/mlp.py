"""A multilayer perceptron, for vectors and small images."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from tpkd.models.classifier import Classifier, Inputs, ModelOutput, tensor_inputs
from tpkd.models.options import MLPOptions


class MLP(Classifier):
    """Linear layers with ReLU between them; no batch statistics, so splitting a batch does not change the gradients.

    With `residual`, logits are a linear function of the inputs plus what the layers add to it, at first nothing.
    """

    def __init__(self, num_classes: int, options: MLPOptions) -> None:
        """Draw the weights of a network of these sizes."""
        super().__init__()
        self.layer_sizes = (options.input_size, *options.hidden)
        self.layers = nn.ModuleList(
            nn.Linear(before, after) for before, after in zip(self.layer_sizes[:-1], self.layer_sizes[1:], strict=True)
        )
        self.dropout = nn.Dropout(options.dropout)
        self._beside = options.input_size if options.residual else 0
        self.fc = nn.Linear(self._beside + self.layer_sizes[-1], num_classes)
        if options.residual:
            nn.init.zeros_(self.fc.weight[:, self._beside :])

    @property
    def probe_size(self) -> int:
        """With `residual`, a probe is fitted on the inputs alone, and the layers start without influence."""
        return self._beside or self.feature_size

    @property
    def classifier(self) -> nn.Linear:
        """The last layer."""
        return self.fc

    def _set_classifier(self, linear: nn.Linear) -> None:
        self.fc = linear

    def _outputs(self, inputs: Inputs, layers: Sequence[int]) -> ModelOutput:
        x = tensor_inputs(inputs).flatten(1)
        if x.shape[1] != self.layer_sizes[0]:
            way_out = f"set options: {{input_size: {x.shape[1]}}}"
            raise ValueError(f"inputs: expected {self.layer_sizes[0]} numbers per example, got {x.shape[1]}; {way_out}")
        states = [x]
        for layer in self.layers:
            states.append(self.dropout(functional.relu(layer(states[-1]))))
        features = torch.cat([x, states[-1]], 1) if self._beside else states[-1]
        return ModelOutput(self.fc(features), features, tuple(states[layer] for layer in layers))
