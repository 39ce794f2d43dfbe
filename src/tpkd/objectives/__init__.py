"""Every method as a loss and as an objective that a training loop can serve, by name."""

from tpkd.objectives.balance import (
    AdamState,
    adam_step,
    amortised_gradient,
    effective_weights,
    literal_gradient,
    min_norm_weights,
)
from tpkd.objectives.base import Batch, Objective, PaperAccuracy
from tpkd.objectives.binary_kl import BinaryKL, BinaryKLNorm
from tpkd.objectives.controls import CompensationOnly, SafeFullKL, TPKDWithoutCE, TPKDWithoutProjection
from tpkd.objectives.cross_entropy import CrossEntropy, cross_entropy_loss
from tpkd.objectives.dhkd import DHKD, align_gradients, auxiliary_head
from tpkd.objectives.dkd import DKD, dkd_loss
from tpkd.objectives.dp import DPS, DPU, dp_loss, selects_teacher
from tpkd.objectives.dto_kd import DTOKD, layer_projectors
from tpkd.objectives.kd import KD, kd_loss
from tpkd.objectives.kl_dist import KLDist, kl_dist_loss
from tpkd.objectives.linear import linear_top_k_tpkd_loss, linear_tpkd_loss
from tpkd.objectives.registry import MethodDescription, create, describe, names, register
from tpkd.objectives.row_objective import RowObjective
from tpkd.objectives.top_k import top_k_kd_loss, top_k_tpkd_loss
from tpkd.objectives.tpkd import TPKD, TPKDLoss, tpkd_loss
from tpkd.objectives.weights import class_sample_weights
from tpkd.objectives.xe_kl import XEKL, xe_kl_loss

__all__ = [
    "DHKD",
    "DKD",
    "DPS",
    "DPU",
    "DTOKD",
    "KD",
    "TPKD",
    "XEKL",
    "AdamState",
    "Batch",
    "BinaryKL",
    "BinaryKLNorm",
    "CompensationOnly",
    "CrossEntropy",
    "KLDist",
    "MethodDescription",
    "Objective",
    "PaperAccuracy",
    "RowObjective",
    "SafeFullKL",
    "TPKDLoss",
    "TPKDWithoutCE",
    "TPKDWithoutProjection",
    "adam_step",
    "align_gradients",
    "amortised_gradient",
    "auxiliary_head",
    "class_sample_weights",
    "create",
    "cross_entropy_loss",
    "describe",
    "dkd_loss",
    "dp_loss",
    "effective_weights",
    "kd_loss",
    "kl_dist_loss",
    "layer_projectors",
    "linear_top_k_tpkd_loss",
    "linear_tpkd_loss",
    "literal_gradient",
    "min_norm_weights",
    "names",
    "register",
    "selects_teacher",
    "top_k_kd_loss",
    "top_k_tpkd_loss",
    "tpkd_loss",
    "xe_kl_loss",
]
