"""The paper's theorems as plain checks of what is handed to them, so that a wrong direction can be shown to fail."""

import dataclasses

import torch
from torch import Tensor

from tpkd.geometry import (
    Directions,
    alignment_bound,
    confidence_axis,
    drop_target,
    imitation_loss,
    in_safe_cone,
    insert_target,
    kl_divergence,
    margins,
    retention_bound,
    split,
)

ROUNDING = 1e-12  # relative to the squared norms compared: a few hundred float64 roundings
ENTRY = 1e-15  # absolute error of an entry of u or h: a few roundings of probabilities up to one
DIFFERENCE = 1e-13  # absolute, for differences of losses up to a few hundred nats


def rounding(square: Tensor) -> Tensor:
    """How far an inner product of vectors with this squared norm may be off."""
    return ROUNDING * square + ENTRY * square.sqrt() + ENTRY**2


def inner(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1)


def in_polar_cone(direction: Tensor, labels: Tensor, *, tolerance: float | None = None) -> Tensor:
    """Appendix A.5: x_j <= 0 off the label and coordinates that sum to 0, relative to the largest entry."""
    slack = (64 * torch.finfo(direction.dtype).eps if tolerance is None else tolerance) * direction.abs().amax(-1)
    others = drop_target(direction, labels)
    return (others <= slack.unsqueeze(-1)).all(-1) & (direction.sum(-1).abs() <= direction.shape[-1] * slack)


def total_variation(log_a: Tensor, log_b: Tensor) -> Tensor:
    """Half the summed absolute difference of two log-distributions."""
    return (log_a.exp() - log_b.exp()).abs().sum(-1) / 2


def uniform_divergence(logits: Tensor, labels: Tensor) -> Tensor:
    """Appendix C.3: F = KL(nu || r) with nu uniform over the incorrect classes."""
    log_r = split(logits, labels).log_conditional
    return kl_divergence(torch.full_like(log_r, 1 / log_r.shape[-1]).log(), log_r)


def replace_safe(step: Directions, labels: Tensor, safe: Tensor) -> Directions:
    """The record that a projection returning `safe` would have led to."""
    compensation = -safe.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    axis = confidence_axis(labels, safe.shape[-1], dtype=safe.dtype)
    return dataclasses.replace(
        step,
        safe=safe,
        update=step.label + safe / 2,
        compensation=compensation,
        pure_conditional=safe - compensation.unsqueeze(-1) * axis,
    )


def negated(step: Directions, labels: Tensor) -> Directions:
    """-d in place of d."""
    return replace_safe(step, labels, -step.safe)


def unprotected(step: Directions, labels: Tensor) -> Directions:
    """u in place of d."""
    return replace_safe(step, labels, step.conditional)


def overcompensated(step: Directions, labels: Tensor) -> Directions:
    """d as it would be if the compensation were wrong by 1e-3."""
    wrong = step.compensation + 1e-3
    others = drop_target(step.conditional, labels).maximum(-wrong.unsqueeze(-1))
    return replace_safe(step, labels, insert_target(others, -wrong, labels))


VIOLATIONS = {"-d": negated, "u for d": unprotected, "l + 1e-3": overcompensated}


def safe_candidates(student: Tensor, teacher: Tensor, labels: Tensor, seed: int = 0) -> Tensor:
    """Predictions with no margin lowered: random gains, and each single class lowered a little or to t_j. (C, N, K)."""
    generator = torch.Generator().manual_seed(seed)
    n, num_classes = student.shape
    gains = torch.rand(8, n, num_classes, generator=generator, dtype=student.dtype)
    gains = gains * 10 ** (4 * torch.rand(8, n, 1, generator=generator, dtype=student.dtype) - 3)
    log_p, log_t = student.log_softmax(-1), teacher.log_softmax(-1)
    # Lowering z_j until p'_j = t_j is the best single move: e^-x = t_j (1 - p_j) / (p_j (1 - t_j)).
    best = (log_p - (-log_p.expm1()).log()) - (log_t - (-log_t.expm1()).log())
    single = torch.diag_embed(torch.where(best > 0, best, 1e-3)).movedim(-2, 0)
    gains = torch.cat([gains, single]).scatter(-1, labels.expand(8 + num_classes, n).unsqueeze(-1), 0.0)
    return student - gains


def check_theorem_1(student: Tensor, teacher: Tensor, labels: Tensor, blocked: Tensor) -> None:
    """Where `blocked`, every safe move raises L_T by at least KL(p || p'); elsewhere some safe move lowers it."""
    candidates = safe_candidates(student, teacher, labels)
    stacked = teacher.expand(candidates.shape), labels.expand(candidates.shape[:-1])
    change = imitation_loss(candidates, *stacked) - imitation_loss(student, teacher, labels)
    distance = kl_divergence(student.log_softmax(-1).expand(candidates.shape), candidates.log_softmax(-1))
    assert (change - distance >= -DIFFERENCE)[:, blocked].all()
    assert (change.amin(0) < 0)[~blocked].all()


def check_theorem_2(student: Tensor, teacher: Tensor, labels: Tensor, cost: Tensor) -> None:
    """(a, (1 - a) q) keeps every margin exactly when logit(a) - logit(rho) >= cost."""
    rest, teacher_rest = drop_target(student, labels), drop_target(teacher, labels)
    label_logit = student.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    log_odds = label_logit - rest.logsumexp(-1)
    for offset in (-1.0, -5e-4, 5e-4, 1.0):
        target = log_odds + cost + offset
        candidate = insert_target(teacher_rest.log_softmax(-1), target, labels)
        kept = (margins(candidate, labels) >= margins(student, labels)).all(-1)
        assert torch.equal(kept, torch.full_like(kept, offset > 0))


def check_theorem_3(step: Directions, labels: Tensor) -> None:
    """Protection, u'd = ||d||^2 >= gamma ||u||^2, ||w||^2 >= gamma ||d||^2, cos(u, w) >= c_K and the relation ball."""
    u, d, w = step.conditional, step.safe, step.pure_conditional
    num_classes = u.shape[-1]
    gamma, c = retention_bound(num_classes), alignment_bound(num_classes)
    uu, dd, ww, uw = inner(u, u), inner(d, d), inner(w, w), inner(u, w)
    slack = rounding(uu)
    assert in_safe_cone(d, labels).all()
    assert ((inner(u, d) - dd).abs() <= slack).all()
    assert (dd >= gamma * uu - slack).all()
    assert (ww >= gamma * dd - slack).all()
    assert (uw >= c * (uu * ww).sqrt() - slack).all()
    ball = w - (1 + gamma) / 2 * u
    assert (inner(ball, ball) <= (1 - gamma) ** 2 / 4 * uu + slack).all()


def check_theorem_4(step: Directions, labels: Tensor) -> None:
    """Label-step margins kept, the alignment bound with its five-term identity, and cos(g, v) >= sqrt(gamma)."""
    h, u, d, v = step.label, step.conditional, step.safe, step.update
    gamma = retention_bound(u.shape[-1])
    g, e = 4 * h + u, u - d
    gg, vv, gv = inner(g, g), inner(v, v), inner(g, v)
    slack = rounding(gg)
    assert in_safe_cone(v - h, labels, tolerance=1e-15).all()
    gap = gv - vv - gamma / 4 * gg
    terms = (
        (3 - 4 * gamma) * inner(h, h)
        + 2 * (1 - gamma) * inner(h, d)
        + (1 - 2 * gamma) * inner(h, e)
        + ((1 - gamma) * inner(d, d) - gamma * inner(e, e)) / 4
    )
    assert ((gap - terms).abs() <= slack).all()
    assert (gap >= -slack).all()
    assert (gv >= (gamma * gg * vv).sqrt() - slack).all()
