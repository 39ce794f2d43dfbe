"""What needs features or a network: exact head updates, certificates, parameter steps (section 5.4, appendix D)."""

from tpkd.parameter_space.certificates import (
    BatchSignals,
    Certificate,
    PairCertificate,
    StackedAlignment,
    angle_bound,
    batch_signals,
    certify,
    stacked_conditional_alignment,
)
from tpkd.parameter_space.head import HeadFactorization, absorb_bias, exact_head_update, factorize_features
from tpkd.parameter_space.steps import (
    ParameterConclusions,
    ParameterGradients,
    ShapeGain,
    StepBound,
    conditional_step_bound,
    explicit_parameter_step,
    parameter_conclusions,
    parameter_gradients,
    parameter_shape_gain,
)
from tpkd.parameter_space.vjp import (
    BatchJacobian,
    as_found,
    displaced,
    network_logits,
    trainable_parameters,
)

__all__ = [
    "BatchJacobian",
    "BatchSignals",
    "Certificate",
    "HeadFactorization",
    "PairCertificate",
    "ParameterConclusions",
    "ParameterGradients",
    "ShapeGain",
    "StackedAlignment",
    "StepBound",
    "absorb_bias",
    "angle_bound",
    "as_found",
    "batch_signals",
    "certify",
    "conditional_step_bound",
    "displaced",
    "exact_head_update",
    "explicit_parameter_step",
    "factorize_features",
    "network_logits",
    "parameter_conclusions",
    "parameter_gradients",
    "parameter_shape_gain",
    "stacked_conditional_alignment",
    "trainable_parameters",
]
