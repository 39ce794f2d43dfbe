"""Task-preserving knowledge distillation: learn from a teacher without giving anything back."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from tpkd.geometry import (
    TopK,
    alignment_bound,
    complete_top_k,
    conditional_distortion_limit,
    directions,
    joint_distortion_limit,
    margins,
    named_direction,
    project_safe_cone,
    retention_bound,
)
from tpkd.objectives import (
    TPKDLoss,
    dkd_loss,
    kd_loss,
    kl_dist_loss,
    linear_top_k_tpkd_loss,
    linear_tpkd_loss,
    top_k_kd_loss,
    top_k_tpkd_loss,
    tpkd_loss,
    xe_kl_loss,
)
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

if _TYPE_CHECKING:
    from tpkd.student.loading import load_student

__all__ = [
    "TPKDLoss",
    "TopK",
    "alignment_bound",
    "certify",
    "complete_top_k",
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
    "linear_top_k_tpkd_loss",
    "linear_tpkd_loss",
    "load_student",
    "log_transfer_path",
    "margins",
    "min_confidence",
    "min_log_odds",
    "named_direction",
    "project_safe_cone",
    "retention_bound",
    "top_k_kd_loss",
    "top_k_tpkd_loss",
    "tpkd_loss",
    "transfer_cost",
    "xe_kl_loss",
]


def __getattr__(name: str) -> _Any:
    """Import `load_student` on its first use: it needs the libraries of the extra `train`, the other names do not."""
    if name != "load_student":
        raise AttributeError(f"module 'tpkd' has no attribute {name!r}")
    from tpkd.errors import extra

    with extra("train"):
        from tpkd.student.loading import load_student
    return load_student
