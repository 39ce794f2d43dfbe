"""Task-preserving knowledge distillation: learn from a teacher without giving anything back."""

from tpkd.geometry import (
    alignment_bound,
    conditional_distortion_limit,
    directions,
    joint_distortion_limit,
    margins,
    named_direction,
    project_safe_cone,
    retention_bound,
)
from tpkd.objectives import TPKDLoss, dkd_loss, kd_loss, kl_dist_loss, linear_tpkd_loss, tpkd_loss, xe_kl_loss
from tpkd.parameter_space import certify, exact_head_update
from tpkd.theory import (
    diagnose,
    frontier,
    is_blocked,
    log_transfer_path,
    min_confidence,
    min_log_odds,
    transfer_cost,
)

__all__ = [
    "TPKDLoss",
    "alignment_bound",
    "certify",
    "conditional_distortion_limit",
    "diagnose",
    "directions",
    "dkd_loss",
    "exact_head_update",
    "frontier",
    "is_blocked",
    "joint_distortion_limit",
    "kd_loss",
    "kl_dist_loss",
    "linear_tpkd_loss",
    "log_transfer_path",
    "margins",
    "min_confidence",
    "min_log_odds",
    "named_direction",
    "project_safe_cone",
    "retention_bound",
    "tpkd_loss",
    "transfer_cost",
    "xe_kl_loss",
]
