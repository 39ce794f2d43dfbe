"""The section `optimizer`: which rule moves the parameters, and with what settings."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tpkd.config.section import NonNegativeReal, PositiveReal, Section

Decimal = Annotated[float, Field(ge=0, lt=1)]
Betas = tuple[Decimal, Decimal]
LayerDecay = Annotated[float, Field(gt=0, le=1)]
"""The rate of a layer d layers below the head is multiplied by the d-th power of this number."""


class SGDConfig(Section):
    """Stochastic gradient descent with momentum; weight decay on every parameter."""

    name: Literal["sgd"] = "sgd"
    learning_rate: PositiveReal
    momentum: Decimal = 0.9
    nesterov: bool = False
    """Take the gradient's step after that of the momentum, as torch's SGD does."""
    weight_decay: NonNegativeReal = 0.0
    layer_decay: LayerDecay | None = None
    """Multiply the rate of each layer by this to the power of its distance from the head; default: one rate for all."""

    @model_validator(mode="after")
    def _has_momentum(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov: expected a momentum above 0 beside it, found 0")
        return self


class AdamWConfig(Section):
    """torch's AdamW; no decay on parameters of one dimension, on biases, and on what a timm network exempts."""

    name: Literal["adamw"] = "adamw"
    learning_rate: PositiveReal
    betas: Betas = (0.9, 0.999)
    eps: PositiveReal = 1e-8
    weight_decay: NonNegativeReal = 0.01
    layer_decay: LayerDecay | None = None
    """Multiply the rate of each layer by this to the power of its distance from the head; default: one rate for all."""


class AdamWeightDecayConfig(Section):
    """Google's Adam for BERT: no bias correction, decay on all but bias and LayerNorm."""

    name: Literal["adam-weight-decay"] = "adam-weight-decay"
    learning_rate: PositiveReal
    betas: Betas = (0.9, 0.999)
    eps: PositiveReal = 1e-6
    weight_decay: NonNegativeReal = 0.01
    layer_decay: LayerDecay | None = None
    """Multiply the rate of each layer by this to the power of its distance from the head; default: one rate for all."""


OptimizerConfig = SGDConfig | AdamWConfig | AdamWeightDecayConfig
