"""Statements about outputs: what is blocked, what transfer costs, what protection keeps (appendices A, B and C).

A class that both networks rule out, by a logit of -inf, counts as if it were not there. Bounds that name the number of
classes still count it, and hold all the same: they are lower bounds, which fall as that number grows.

Labels are classes `(*batch)`, or sets of correct classes `(*batch, K)`, given by probabilities or, where no label loss
is involved, by a mask. What is stated for one correct class refuses sets of several by name.
"""

from tpkd.theory.blocking import BlockingGap, blocking_gap, is_blocked, strict_blocking_log_odds
from tpkd.theory.compensation import (
    ce_only_imitation_loss,
    ce_only_optimum,
    log_separation_family,
    log_transfer_path,
    min_confidence,
    min_log_odds,
    transfer_cost,
    transfer_endpoint,
)
from tpkd.theory.diagnosis import Diagnosis, diagnose
from tpkd.theory.dynamics import (
    AlignmentExpansion,
    JointAlignment,
    OwnDescent,
    OwnStepLimit,
    alignment_expansion,
    batch_alignment,
    ce_interaction,
    joint_alignment,
    joint_potential,
    own_descent,
    own_step_limit,
    potential_gradient,
)
from tpkd.theory.frontier import (
    FrontierEnds,
    FrontierPoint,
    LogFormPoint,
    frontier,
    frontier_ends,
    frontier_log_form,
    is_budget_feasible,
)
from tpkd.theory.iteration import (
    DescentCertificate,
    Residuals,
    average_component_residual_bound,
    average_joint_residual_bound,
    descent_certificate,
    general_descent_certificate,
    output_iteration,
    residual_sum_bound,
    squared_residuals,
)
from tpkd.theory.local import (
    LocalOptimum,
    fixed_length_optimum,
    local_clipped_gradient,
    local_clipped_loss,
    quadratic_optimum,
)
from tpkd.theory.monitor import observe
from tpkd.theory.retention import (
    CompensationBounds,
    ExtraLabelGain,
    ExtraMargin,
    RemovedSignal,
    Retention,
    compensation_bounds,
    extra_label_gain,
    extra_margin,
    relation_ball_slack,
    removed_signal,
    retention,
)

__all__ = [
    "AlignmentExpansion",
    "BlockingGap",
    "CompensationBounds",
    "DescentCertificate",
    "Diagnosis",
    "ExtraLabelGain",
    "ExtraMargin",
    "FrontierEnds",
    "FrontierPoint",
    "JointAlignment",
    "LocalOptimum",
    "LogFormPoint",
    "OwnDescent",
    "OwnStepLimit",
    "RemovedSignal",
    "Residuals",
    "Retention",
    "alignment_expansion",
    "average_component_residual_bound",
    "average_joint_residual_bound",
    "batch_alignment",
    "blocking_gap",
    "ce_interaction",
    "ce_only_imitation_loss",
    "ce_only_optimum",
    "compensation_bounds",
    "descent_certificate",
    "diagnose",
    "extra_label_gain",
    "extra_margin",
    "fixed_length_optimum",
    "frontier",
    "frontier_ends",
    "frontier_log_form",
    "general_descent_certificate",
    "is_blocked",
    "is_budget_feasible",
    "joint_alignment",
    "joint_potential",
    "local_clipped_gradient",
    "local_clipped_loss",
    "log_separation_family",
    "log_transfer_path",
    "min_confidence",
    "min_log_odds",
    "observe",
    "output_iteration",
    "own_descent",
    "own_step_limit",
    "potential_gradient",
    "quadratic_optimum",
    "relation_ball_slack",
    "removed_signal",
    "residual_sum_bound",
    "retention",
    "squared_residuals",
    "strict_blocking_log_odds",
    "transfer_cost",
    "transfer_endpoint",
]
