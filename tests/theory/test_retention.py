import itertools
import math

import pytest
import torch

import oracles
from strategies import KINDS, all_kinds, make_pairs, one_negative_deviation, one_positive_deviation
from theory.checks import ENTRY, VIOLATIONS, inner, rounding, total_variation
from tpkd.geometry import (
    alignment_bound,
    directions,
    drop_target,
    label_loss,
    margins,
    retention_bound,
    split,
)
from tpkd.theory import (
    compensation_bounds,
    extra_label_gain,
    extra_margin,
    relation_ball_slack,
    removed_signal,
    retention,
)

CLASSES = [3, 10, 100]


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_retention_bounds(num_classes, kind):
    """eq:retention, eq:relation-angle, thm:retention through the public record."""
    kept = retention(*make_pairs(kind, 300, num_classes, seed=0))
    gamma, c = retention_bound(num_classes), alignment_bound(num_classes)
    torch.testing.assert_close(kept.descent_share, kept.norm_share, rtol=1e-9, atol=0)
    for field, bound in (("descent_share", gamma), ("pure_share", gamma), ("cosine", c)):
        assert (getattr(kept, field) >= bound - 1e-10).all(), field
        assert (getattr(kept, field) <= 1 + 1e-12).all(), field
    assert c >= 2 * math.sqrt(2) / 3


@pytest.mark.parametrize("num_classes", CLASSES)
def test_retention_agrees_with_loops(num_classes):
    student, teacher, labels = make_pairs("random", 100, num_classes, seed=1)
    kept = retention(student, teacher, labels)
    for i, y in enumerate(labels.tolist()):
        truth = oracles.directions(student[i].numpy(), teacher[i].numpy(), y)
        u, d, w = truth["conditional"], truth["safe"], truth["pure_conditional"]
        assert kept.descent_share[i].item() == pytest.approx((u @ d) / (u @ u), rel=1e-8)
        assert kept.pure_share[i].item() == pytest.approx((w @ w) / (d @ d), rel=1e-8)
        assert kept.cosine[i].item() == pytest.approx((u @ w) / math.sqrt((u @ u) * (w @ w)), rel=1e-8)


@pytest.mark.parametrize("num_classes", CLASSES)
def test_retention_is_tight(num_classes):
    """thm:retention: both norm bounds are attained, together, with w_cond = gamma u; eq:relation-ball then too."""
    case = one_positive_deviation(num_classes, size=0.5)
    labels = torch.tensor(case.label)
    kept = retention(case.student, case.teacher, labels)
    gamma = retention_bound(num_classes)
    assert kept.descent_share.item() == pytest.approx(gamma, rel=1e-12)
    assert kept.pure_share.item() == pytest.approx(gamma, rel=1e-12)
    assert relation_ball_slack(case.student, case.teacher, labels).item() == pytest.approx(0, abs=1e-12)
    step = directions(case.student, case.teacher, labels)
    torch.testing.assert_close(step.pure_conditional, gamma * step.conditional, rtol=1e-10, atol=1e-16)


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_relation_ball(num_classes, kind):
    """eq:relation-ball, prop:alignment."""
    assert (relation_ball_slack(*make_pairs(kind, 300, num_classes, seed=2)) >= -1e-10).all()


def test_nothing_left_is_fully_retained():
    student, _, labels = all_kinds(50, 5, seed=3)
    kept = retention(student, student, labels)
    for share in (kept.descent_share, kept.norm_share, kept.pure_share, kept.cosine):
        assert torch.equal(share, torch.ones_like(share))
    assert (relation_ball_slack(student, student, labels) == 0).all()


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_removed_signal_is_exact(num_classes, kind):
    """eq:exact-removed, eq:active-removed."""
    student, teacher, labels = make_pairs(kind, 300, num_classes, seed=4)
    removed = removed_signal(student, teacher, labels)
    slack = rounding(inner(u := directions(student, teacher, labels).conditional, u))
    assert ((removed.removed - removed.clipped).abs() <= slack).all()
    assert (removed.clipped >= removed.lower - slack).all()
    assert (removed.clipped <= removed.upper + slack).all()
    assert (removed.active[directions(student, teacher, labels).compensation > ENTRY] >= 1).all()


def test_removed_signal_bounds_are_attained():
    """eq:active-removed: with one clipped class both bounds meet; with equal clipped masses the lower one is met."""
    one = one_positive_deviation(10, size=0.5)
    single = removed_signal(one.student, one.teacher, torch.tensor(0))
    assert single.active == 1
    torch.testing.assert_close(single.lower, single.upper)
    torch.testing.assert_close(single.removed, single.upper, rtol=1e-10, atol=0)
    many = one_negative_deviation(10, size=0.5)
    equal = removed_signal(many.student, many.teacher, torch.tensor(0))
    assert equal.active == 8
    torch.testing.assert_close(equal.removed, equal.lower, rtol=1e-10, atol=0)


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_removed_signal_identity_rejects_a_wrong_direction(violation):
    student, teacher, labels = make_pairs("random", 100, 10, seed=5)
    wrong = VIOLATIONS[violation](directions(student, teacher, labels), labels)
    u, d = wrong.conditional, wrong.safe
    clipped = drop_target(d - u, labels).clamp(min=0)
    gap = inner(u, u) - inner(u, d) - wrong.compensation**2 - inner(clipped, clipped)
    if violation == "u for d":  # u removes nothing and keeps nothing safe: caught by the cone, not by the identity
        assert (margins(d, labels) > 0).any()
    else:
        assert (gap.abs() > 1e-7).any()


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_compensation_between_its_bounds(num_classes, kind):
    """Appendix B.2: TV / (K - 1) <= l <= TV / 2, and l < 1/2."""
    student, teacher, labels = make_pairs(kind, 300, num_classes, seed=6)
    bounds = compensation_bounds(student, teacher, labels)
    distance = total_variation(split(student, labels).log_conditional, split(teacher, labels).log_conditional)
    torch.testing.assert_close(bounds.upper, distance / 2)
    torch.testing.assert_close(bounds.lower, distance / (num_classes - 1))
    assert (bounds.compensation >= bounds.lower - ENTRY).all()
    assert (bounds.compensation <= bounds.upper + ENTRY).all()
    assert (bounds.compensation <= 0.5).all()


@pytest.mark.parametrize("num_classes", CLASSES)
def test_compensation_bounds_are_tight(num_classes):
    high, low = one_positive_deviation(num_classes), one_negative_deviation(num_classes)
    at_high = compensation_bounds(high.student, high.teacher, torch.tensor(0))
    at_low = compensation_bounds(low.student, low.teacher, torch.tensor(0))
    torch.testing.assert_close(at_high.compensation, at_high.upper, rtol=1e-9, atol=0)
    torch.testing.assert_close(at_low.compensation, at_low.lower, rtol=1e-9, atol=0)


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("step_size", [0.0, 0.05, 0.8, 30.0])
def test_extra_margin_is_what_the_steps_give(num_classes, step_size):
    """eq:extra-margin-bound against the margins of the two steps taken."""
    student, teacher, labels = make_pairs("random", 200, num_classes, seed=7)
    step = directions(student, teacher, labels)
    extra = extra_margin(student, teacher, labels, step_size)
    taken = margins(student - step_size * step.update, labels) - margins(student - step_size * step.label, labels)
    torch.testing.assert_close(extra.gain, taken, rtol=0, atol=1e-13 * (1 + step_size) * 100)
    assert (extra.gain >= 0).all()
    assert (extra.gain <= extra.bound.unsqueeze(-1) * (1 + 1e-12)).all()
    q, r = (split(z, labels).log_conditional.exp() for z in (teacher, student))
    formula = step_size / 2 * (r - q + step.compensation.unsqueeze(-1)).clamp(min=0)
    torch.testing.assert_close(extra.gain, formula, rtol=0, atol=1e-15 * (1 + step_size))


def test_extra_margin_bound_is_approached():
    """eq:extra-margin-bound with K = 3: one class gives its whole mass, l = T / 2, and 3 T / 4 is attained."""
    case = one_positive_deviation(3, size=0.9)
    extra = extra_margin(case.student, case.teacher, torch.tensor(0), 1.0)
    torch.testing.assert_close(extra.gain.amax(), extra.bound, rtol=1e-10, atol=0)


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("step_size", [0.05, 0.8, 5.0])
def test_extra_label_gain_chain(num_classes, step_size):
    """eq:extra-ce-bound: each quantity is at most the next, and the first is that of the steps taken."""
    student, teacher, labels = all_kinds(300, num_classes, seed=8)
    extra = extra_label_gain(student, teacher, labels, step_size)
    step = directions(student, teacher, labels)
    taken = label_loss(student - step_size * step.label, labels) - label_loss(student - step_size * step.update, labels)
    torch.testing.assert_close(extra.gain, taken, rtol=1e-9, atol=1e-9)
    chain = [torch.zeros_like(extra.gain), extra.gain, extra.first_order, extra.bound, extra.initial_bound]
    for low, high in itertools.pairwise(chain):
        # Losses of a few thousand nats (the huge kind) leave 1e-12 in their difference.
        assert (low <= high * (1 + 1e-9) + 2e-12).all()


def test_extra_label_gain_does_not_depend_on_a_common_shift():
    """In float32, with multiples of 1/64: a step from logits of 1e4 would be rounded to multiples of 1e-3."""
    student, teacher, labels = make_pairs("random", 100, 10, seed=20, dtype=torch.float32)
    student, teacher = ((z.clamp(-100, 100) * 64).round() / 64 for z in (student, teacher))
    extra = extra_label_gain(student, teacher, labels, 0.1)
    shifted = extra_label_gain(student + 1e4, teacher - 1e4, labels, 0.1)
    for name, value in vars(extra).items():
        assert torch.equal(getattr(shifted, name), value), name


@pytest.mark.parametrize("gain", [extra_margin, extra_label_gain])
@pytest.mark.parametrize("step_size", [-1.0, float("inf"), float("nan")])
def test_a_step_is_finite_and_not_negative(gain, step_size):
    """An endless step has no gain: where r = q it would be infinity times zero."""
    with pytest.raises(ValueError, match=f"step_size: expected finite numbers from 0 on, got {step_size:g}"):
        gain(torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(1, dtype=torch.long), step_size)
