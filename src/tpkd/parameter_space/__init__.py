"""What needs features or a network: exact head updates, certificates, parameter steps (section 5.4, appendix D)."""

from tpkd.parameter_space.certificates import (
    Certificate,
    PairCertificate,
    StackedAlignment,
    angle_bound,
    certify,
    stacked_conditional_alignment,
)
from tpkd.parameter_space.head import HeadFactorization, absorb_bias, exact_head_update, factorize_features
from tpkd.parameter_space.steps import (
    ParameterConclusions,
    ParameterGradients,
    ShapeGain,
    StepBound,
    explicit_parameter_step,
    parameter_conclusions,
    parameter_gradients,
    parameter_shape_gain,
)
from tpkd.parameter_space.vjp import network_logits

__all__ = [
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
    "certify",
    "exact_head_update",
    "explicit_parameter_step",
    "factorize_features",
    "network_logits",
    "parameter_conclusions",
    "parameter_gradients",
    "parameter_shape_gain",
    "stacked_conditional_alignment",
]
