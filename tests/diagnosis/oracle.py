"""A plain-loop NumPy script that diagnoses a student, written from the paper's definitions."""

import numpy as np


def log_sum_exp(values):
    top = values.max()
    return top + np.log(np.exp(values - top).sum())


def log_sigmoid(x):
    return -np.log1p(np.exp(-x)) if x >= 0 else x - np.log1p(np.exp(x))


def bisect(function, low, high):
    """The root of a decreasing function."""
    for _ in range(70):  # halves an interval of 60 down to rounding
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return (low + high) / 2


def cosine(a, b):
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    return a @ b / np.sqrt((a @ a) * (b @ b))


def parts_of(logits, label):
    others = np.delete(logits, label)
    total = log_sum_exp(others)
    return logits[label] - total, others - total


def diagnose_row(student, teacher, label):
    """Every field of one example, as numbers; the label stands first in every vector."""
    odds, log_r = parts_of(student.astype(np.float64), label)
    teacher_odds, log_q = parts_of(teacher.astype(np.float64), label)
    r, q = np.exp(log_r), np.exp(log_q)
    doubt, teacher_doubt = np.exp(log_sigmoid(-odds)), np.exp(log_sigmoid(-teacher_odds))
    conditional = max(0.0, float(np.sum(q * (log_q - log_r))))
    confidence_part = np.exp(log_sigmoid(teacher_odds)) * (log_sigmoid(teacher_odds) - log_sigmoid(odds))
    confidence_part += teacher_doubt * (log_sigmoid(-teacher_odds) - log_sigmoid(-odds))
    cost = max(0.0, float(np.max(log_q - log_r)))
    push = bisect(lambda x: np.maximum(q - r - x, 0).sum() - x, 0.0, 1.0)
    u = np.concatenate([[0.0], r - q])
    d = np.concatenate([[-push], np.maximum(r - q, -push)])
    h = doubt * np.concatenate([[-1.0], r])
    return {
        "blocked": bool(np.all(log_sigmoid(-odds) + log_r <= log_sigmoid(-teacher_odds) + log_q)),
        "confidence": np.exp(log_sigmoid(odds)),
        "teacher_confidence": np.exp(log_sigmoid(teacher_odds)),
        "label_loss": -log_sigmoid(odds),
        "imitation_loss": confidence_part + teacher_doubt * conditional,
        "conditional_loss": conditional,
        "transfer_cost": cost,
        "min_confidence": np.exp(log_sigmoid(odds + cost)),
        "compensation": push,
        "retention": u @ d / (u @ u),
        "update_cosine": cosine(4 * h + u, h + d / 2),
        "confidence_part": confidence_part,
        "conditional_part": teacher_doubt * conditional,
        "log_r": log_r,
        "log_q": log_q,
    }


def frontier_value(log_r, log_q, budget):
    """min KL(q || x) over x_j <= e^B r_j, by bisection on the multiplier."""
    cap, q = np.exp(budget + log_r), np.exp(log_q)
    if budget == 0:
        return float(np.sum(q * (log_q - log_r)))
    # Uncapped classes hold q / lambda with 0 < lambda <= 1; the total falls as lambda grows.
    log_lambda = bisect(lambda x: np.minimum(cap, np.exp(log_q - x)).sum() - 1, -60.0, 0.0)
    return float(np.sum(q * (log_q - np.minimum(budget + log_r, log_q - log_lambda))))
