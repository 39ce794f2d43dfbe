"""One output: pure functions of logits, classes on the last axis (paper sections 3, 5.1 and 5.2).

`EXTENSIONS 1`, `2` and `3` in docstrings are what goes beyond the paper: sets of correct classes, truncated teachers
and temperatures, with proofs on pages 11, 12 and 13 of the theory in the documentation.
"""

from tpkd.geometry.averaging import average_conditionals, average_probabilities
from tpkd.geometry.cone import in_conditional_plane, in_safe_cone, project_safe_cone
from tpkd.geometry.constants import (
    PAPER_BETA,
    POTENTIAL_LABEL_WEIGHT,
    alignment_bound,
    coefficient_constant,
    conditional_distortion_limit,
    general_step_limit,
    joint_cosine_bound,
    joint_distortion_limit,
    retention_bound,
)
from tpkd.geometry.correct import drop_target, insert_target
from tpkd.geometry.directions import (
    Directions,
    clipped_teacher,
    confidence_axis,
    directions,
    imitation_direction,
    named_direction,
    normalized_clipped_teacher,
)
from tpkd.geometry.divergences import (
    binary_kl_divergence,
    conditional_loss,
    imitation_loss,
    kl_divergence,
    label_loss,
    max_log_ratio,
)
from tpkd.geometry.margins import in_safe_set, margin_gain, margins, weighted_label_loss
from tpkd.geometry.split import Split, join, split
from tpkd.geometry.top_k import TopK, complete_top_k

__all__ = [
    "PAPER_BETA",
    "POTENTIAL_LABEL_WEIGHT",
    "Directions",
    "Split",
    "TopK",
    "alignment_bound",
    "average_conditionals",
    "average_probabilities",
    "binary_kl_divergence",
    "clipped_teacher",
    "coefficient_constant",
    "complete_top_k",
    "conditional_distortion_limit",
    "conditional_loss",
    "confidence_axis",
    "directions",
    "drop_target",
    "general_step_limit",
    "imitation_direction",
    "imitation_loss",
    "in_conditional_plane",
    "in_safe_cone",
    "in_safe_set",
    "insert_target",
    "join",
    "joint_cosine_bound",
    "joint_distortion_limit",
    "kl_divergence",
    "label_loss",
    "margin_gain",
    "margins",
    "max_log_ratio",
    "named_direction",
    "normalized_clipped_teacher",
    "project_safe_cone",
    "retention_bound",
    "split",
    "weighted_label_loss",
]
