"""The paper's constants of the number of classes, and the step sizes its descent statements allow."""

import math

PAPER_BETA = 0.5
"""Weight of the safe conditional direction in the paper's update v = h + d / 2 (eq:core)."""

POTENTIAL_LABEL_WEIGHT = 4.0
"""Weight of the label loss in the joint potential Phi = 4 L_CE + L_cond (section 5.3)."""

OUTPUT_STEP_LIMIT = 4 / 5
"""Largest output step for which eq:descentcertificate is stated."""


def retention_bound(num_classes: int, num_correct: int = 1) -> float:
    """The least share of first-order conditional descent that the safe direction keeps.

    Paper: section 5.2, gamma_K = K / (2 (K - 1)), above one half and tight. EXTENSIONS 1, with m correct classes:
    gamma_{K,m} = K / ((m + 1)(K - m)), tight; below one half once K > m (m + 1) / (m - 1).

    Example:
        >>> round(retention_bound(100), 4), round(retention_bound(100, 2), 4)
        (0.5051, 0.3401)
    """
    _check_num_classes(num_classes, num_correct)
    return num_classes / ((num_correct + 1) * (num_classes - num_correct))


def alignment_bound(num_classes: int, num_correct: int = 1) -> float:
    """The least cosine between the teacher's conditional signal and what the safe direction keeps of it.

    Paper: eq:relation-angle, c_K = 2 sqrt(gamma_K) / (1 + gamma_K), never below 2 sqrt(2) / 3. EXTENSIONS 1: the same
    with gamma_{K,m}.

    Example:
        >>> round(alignment_bound(100), 4), round(alignment_bound(100, 2), 4)
        (0.9444, 0.8704)
    """
    gamma = retention_bound(num_classes, num_correct)
    return 2 * math.sqrt(gamma) / (1 + gamma)


def joint_cosine_bound(num_classes: int, *, beta: float = PAPER_BETA) -> float:
    """The least cosine between g_Phi = 4 h + u and h + beta d, for one example and for a stacked batch.

    Paper: section 5.3, sqrt(gamma_K) for beta = 1/2, tight. Elsewhere what appendix C.5 gives with w = 4: there
    g'v >= w H^2 - H S + beta gamma_K S^2 with H = ||h|| and S = ||u||, and ||g|| ||v|| <= (w H + S)(H + beta S); the
    bound is the least ratio of the two over all H and S, and 0 where 4 w beta gamma_K <= 1 leaves nothing certain.

    Example:
        >>> round(joint_cosine_bound(100), 4), round(joint_cosine_bound(100, beta=1.0), 4)
        (0.7107, 0.1975)
    """
    if not 0 <= beta < math.inf:
        raise ValueError(f"beta: expected a nonnegative finite weight of the conditional direction, got {beta}")
    gamma = retention_bound(num_classes)
    if beta == PAPER_BETA:
        return math.sqrt(gamma)
    # The ratio exceeds s everywhere until (1 + s (1 + B))^2 = 4 B (1 - s)(gamma - s), with B = w beta.
    B = POTENTIAL_LABEL_WEIGHT * beta
    slope, rest = 2 * (1 + B) + 4 * B * (1 + gamma), 4 * B * gamma - 1
    return 2 * rest / (slope + math.sqrt(slope**2 + 4 * (1 - B) ** 2 * rest)) if rest > 0 else 0.0


def joint_distortion_limit(num_classes: int, *, beta: float = PAPER_BETA) -> float:
    """How unevenly a network may stretch the joint signals before descent of Phi is no longer certain.

    Paper: section 5.4, kappa_Phi = (1 + sqrt(gamma_K)) / (1 - sqrt(gamma_K)). For another `beta` the same with
    `joint_cosine_bound` in place of sqrt(gamma_K); 1, which no network is below, where nothing is certain.

    Example:
        >>> round(joint_distortion_limit(100), 6), round(joint_distortion_limit(100, beta=1.0), 4)
        (5.912499, 1.4921)
    """
    cosine = joint_cosine_bound(num_classes, beta=beta)
    return (1 + cosine) / (1 - cosine)


def conditional_distortion_limit(num_classes: int) -> float:
    """How unevenly a network may stretch the conditional signals before their gain is no longer certain.

    Paper: eq:conditional-kernel-condition, kappa_c = kappa_Phi ** 2 = (1 + c_K) / (1 - c_K).

    Example:
        >>> round(conditional_distortion_limit(100), 6)
        34.95765
    """
    return joint_distortion_limit(num_classes) ** 2


def coefficient_constant(label_weight: float, beta: float, num_classes: int, num_correct: int = 1) -> float:
    """The descent constant of h + beta d on label_weight * L_CE + L_cond; positive where joint learning is certain.

    Paper: eq:general-coefficient-condition, 4 w beta gamma_K > 1 exactly when this
    c_{w,beta} = (w + beta gamma_K - sqrt((w - beta gamma_K)^2 + 1)) / 2 is positive. EXTENSIONS 1: with gamma_{K,m}.

    Example:
        >>> coefficient_constant(4.0, 0.5, 3) > 0, coefficient_constant(0.5, 0.5, 3) > 0
        (True, False)
    """
    if not (label_weight > 0 and beta > 0):
        raise ValueError(f"label_weight and beta: expected positive numbers, got {label_weight} and {beta}")
    scaled = beta * retention_bound(num_classes, num_correct)
    # (a - b) = (a^2 - b^2) / (a + b): the printed difference cancels for large weights.
    root = math.hypot(label_weight - scaled, 1.0)
    return (4 * label_weight * scaled - 1) / (2 * (label_weight + scaled + root))


def general_step_limit(label_weight: float, beta: float, num_classes: int, num_correct: int = 1) -> float:
    """The largest output step for which h + beta d is certain to descend on label_weight * L_CE + L_cond.

    Paper: eq:general-coefficient-step, c_{w,beta} / ((w + 1) max(1, beta^2)).

    Example:
        >>> 0 < general_step_limit(4.0, 0.5, 100) < 1
        True
    """
    constant = coefficient_constant(label_weight, beta, num_classes, num_correct)
    if constant <= 0:
        raise ValueError(
            f"label_weight={label_weight}, beta={beta}: expected 4 * label_weight * beta * gamma_K > 1 "
            f"for {num_classes} classes, got {4 * label_weight * beta * retention_bound(num_classes, num_correct):g}"
        )
    return constant / ((label_weight + 1) * max(1.0, beta**2))


def _check_num_classes(num_classes: int, num_correct: int = 1) -> None:
    if num_classes < 3 or num_classes != int(num_classes):
        raise ValueError(f"num_classes: expected a whole number of at least 3, got {num_classes}")
    if not 1 <= num_correct <= num_classes - 2 or num_correct != int(num_correct):
        raise ValueError(
            f"num_correct: expected a whole number from 1 to {num_classes - 2}, which leaves two incorrect classes, "
            f"got {num_correct}"
        )
