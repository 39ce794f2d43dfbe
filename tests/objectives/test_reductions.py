"""How the methods contain each other: every relation is a test of two implementations at once."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from objectives.cases import make_inputs
from strategies import make_pairs
from tpkd.geometry import named_direction
from tpkd.objectives import (
    BinaryKL,
    BinaryKLNorm,
    align_gradients,
    amortised_gradient,
    create,
    cross_entropy_loss,
    dkd_loss,
    dp_loss,
    effective_weights,
    kd_loss,
    kl_dist_loss,
    min_norm_weights,
    selects_teacher,
    tpkd_loss,
    xe_kl_loss,
)
from tpkd.objectives.dkd import decoupled_rows

PAIRS = make_pairs("random", 200, 7, seed=4)
Z, ZT, Y = PAIRS
Z0 = make_pairs("random", 200, 7, seed=5).student


def rows(loss, student=None):
    """Per-example values and gradients of a loss of the student logits."""
    z = (Z if student is None else student).clone().requires_grad_()
    values = loss(z)
    values.sum().backward()
    return values.detach(), z.grad


def assert_same(left, right, atol=1e-12):
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, atol=atol, rtol=atol)


def test_01_kd_at_unit_temperature_without_labels_is_kl_dist():
    kd = rows(lambda z: kd_loss(z, ZT, Y, temperature=1.0, ce_weight=0.0, kd_weight=1.0, reduction="none"))
    assert_same(kd, rows(lambda z: kl_dist_loss(z, ZT, reduction="none")), atol=0)


@pytest.mark.parametrize("mix", [0.0, 0.3, 0.5, 1.0])
def test_02_kd_with_complementary_weights_is_xe_kl(mix):
    weights = {"temperature": 1.0, "ce_weight": 1 - mix, "kd_weight": mix}
    kd = rows(lambda z: kd_loss(z, ZT, Y, reduction="none", **weights))
    assert_same(kd, rows(lambda z: xe_kl_loss(z, ZT, Y, mix=mix, reduction="none")), atol=1e-14)


def test_03_xe_kl_ends_at_kl_dist_and_at_ce():
    only_kl = rows(lambda z: xe_kl_loss(z, ZT, Y, mix=1.0, reduction="none"))
    assert_same(only_kl, rows(lambda z: kl_dist_loss(z, ZT, reduction="none")), atol=0)
    ce = rows(lambda z: cross_entropy_loss(z, Y, reduction="none"))
    assert_same(rows(lambda z: xe_kl_loss(z, ZT, Y, mix=0.0, reduction="none")), ce, atol=0)
    released = rows(lambda z: xe_kl_loss(z, ZT, Y, mix=0.0, label_term="double-softmax", reduction="none"))
    assert (released[1] - ce[1]).abs().max() > 0.1


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_04_target_and_non_target_parts_add_up_to_imitation(temperature):
    residual = 1 - (ZT / temperature).softmax(-1).gather(-1, Y.unsqueeze(-1)).squeeze(-1)

    def parts(z):
        target, non_target = decoupled_rows(z, ZT, Y, temperature)
        return target + residual * non_target

    assert_same(rows(parts), rows(lambda z: kl_dist_loss(z, ZT, temperature=temperature, reduction="none")), 1e-11)


def test_05_dkd_with_the_teachers_residual_as_beta_is_the_kd_term():
    for i in range(20):
        tau = (ZT[i] / 4).softmax(-1)[Y[i]].item()
        dkd = rows(lambda z, i=i, beta=1 - tau: dkd_loss(z, ZT[i], Y[i], beta=beta, ce_weight=0.0), Z[i])
        kd = rows(lambda z, i=i: kd_loss(z, ZT[i], Y[i], ce_weight=0.0), Z[i])
        assert_same(dkd, kd, 1e-11)


def test_06_ce_with_half_the_non_target_part_is_tpkd_without_projection():
    dkd = rows(lambda z: dkd_loss(z, ZT, Y, alpha=0.0, beta=0.5, temperature=1.0, reduction="none"))
    torch.testing.assert_close(dkd[1], named_direction("tpkd-no-projection", Z, ZT, Y), atol=1e-12, rtol=0)


def test_07_dkd_without_target_part_never_moves_the_label():
    _, gradient = rows(lambda z: dkd_loss(z, ZT, Y, alpha=0.0, ce_weight=0.0, reduction="none"))
    assert (gradient.gather(-1, Y.unsqueeze(-1)) == 0).all()
    assert gradient.sum(-1).abs().max() < 1e-12
    assert gradient.abs().max() > 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("supervised", [False, True])
def test_08_partition_that_always_picks_the_teacher_is_kl_dist_bitwise(dtype, supervised):
    z, zt = Z.to(dtype), ZT.to(dtype)
    initial = torch.zeros_like(z)
    if supervised:
        initial.scatter_(-1, Y.unsqueeze(-1), -50.0)
    assert selects_teacher(zt.double(), initial.double(), Y if supervised else None).all()
    dp = rows(lambda z: dp_loss(z, zt, initial, Y, supervised=supervised, reduction="none"), z)
    kl = rows(lambda z: kl_dist_loss(z, zt, Y, reduction="none"), z)
    for a, b in zip(dp, kl, strict=True):
        assert torch.equal(a, b)


def test_09_partition_that_never_picks_the_teacher_rests_at_the_initial_student():
    flat = torch.zeros_like(ZT)
    assert not selects_teacher(flat, Z).any()
    values, gradient = rows(lambda z: dp_loss(z, flat, Z, supervised=False, reduction="none"))
    assert (values == 0).all()
    assert gradient.abs().max() < 1e-15


def test_10_partitions_agree_where_both_are_right():
    by_top, by_label = selects_teacher(ZT, Z0), selects_teacher(ZT, Z0, Y)
    teacher_right, initial_right = ZT.argmax(-1) == Y, Z0.argmax(-1) == Y
    both = teacher_right & initial_right
    assert both.any()
    assert torch.equal(by_top[both], by_label[both])
    assert (by_top & teacher_right).any()
    assert by_label[by_top & teacher_right].all()


def test_11_binary_kl_norm_becomes_logit_matching_at_high_temperature():
    values, gradient = rows(lambda z: BinaryKLNorm(1e4)(z, ZT, reduction="none"))
    torch.testing.assert_close(values, (Z - ZT).square().sum(-1) / 8, atol=0, rtol=1e-5)  # next order: (d / 2T)^2 / 6
    torch.testing.assert_close(gradient, (Z - ZT) / 4, atol=1e-10, rtol=1e-5)


def test_12_both_binary_losses_agree_for_a_flat_teacher():
    flat = torch.zeros_like(ZT)
    norm = rows(lambda z: BinaryKLNorm()(z, flat, reduction="none"))
    assert_same(norm, rows(lambda z: BinaryKL()(z, flat, reduction="none")), 1e-12)


@pytest.mark.parametrize("preset", ["cifar-release", "imagenet-release"])
def test_13_dhkd_without_distillation_weight_is_ce(preset):
    inputs = make_inputs()
    losses = create("dhkd", preset=preset, alpha=0.0).losses(inputs.batch())
    assert losses["distillation"] == 0
    assert losses["label"] == cross_entropy_loss(inputs.student, inputs.labels)


def gradient_pairs(count, size=6, seed=8):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 2, size, generator=generator, dtype=torch.float64)


def test_14_alignment_without_conflict_is_the_plain_sum():
    agreeing = [pair for pair in gradient_pairs(100) if pair[0] @ pair[1] >= 0]
    assert agreeing
    for label, distillation in agreeing:
        assert torch.equal(align_gradients(label, distillation), label + distillation)


def test_15_alignment_under_conflict_lengthens_the_label_step():
    opposing = [pair for pair in gradient_pairs(100) if pair[0] @ pair[1] < 0]
    assert opposing
    for label, distillation in opposing:
        c = (label @ distillation).abs() / (label @ label)
        found = align_gradients(label, distillation)
        torch.testing.assert_close(found, (1 + c) * label + distillation, atol=1e-14, rtol=0)
        torch.testing.assert_close(found @ label, label @ label, atol=1e-13, rtol=0)


def test_16_orthogonal_gradients_of_equal_length_weigh_the_same():
    gradients = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
    assert min_norm_weights(gradients).tolist() == [0.5, 0.5]


def test_17_interior_solutions_contribute_equally():
    interior = 0
    for gradients in gradient_pairs(100):
        weights = min_norm_weights(gradients)
        if weights.min() > 0:
            interior += 1
            step = weights @ gradients
            torch.testing.assert_close(gradients @ step, (step @ step).expand(2), atol=1e-12, rtol=0)
    assert 0 < interior < 100


def test_18_exact_dto_kd_on_raw_gradients_is_mgda():
    """With all losses equal to one, log-losses have the losses' own gradients: the classical clipped closed form."""
    objective = create("dto-kd", variant="exact")
    ones = {name: torch.tensor(1.0, dtype=torch.float64) for name in objective.objective_names}
    for first, second in gradient_pairs(50):
        gap = first - second
        weight = ((second - first) @ second / (gap @ gap)).clamp(0, 1)
        step = objective.combine({"label": first, "distillation": second}, ones)
        torch.testing.assert_close(step, weight * first + (1 - weight) * second, atol=1e-7, rtol=0)  # L + 1e-8


def test_19_dto_kd_with_frozen_equal_weights_on_the_losses_is_xe_kl():
    """Weights on the losses themselves are those on log-losses at L = 1 without normalisation."""
    objective = create("dto-kd", normalise=False)
    inputs = make_inputs()
    z = inputs.student.clone().requires_grad_()
    losses = {
        "label": cross_entropy_loss(z, inputs.labels),
        "distillation": kl_dist_loss(z, inputs.teacher, inputs.labels),
    }
    gradients = {name: torch.autograd.grad(loss, z, retain_graph=True)[0].reshape(-1) for name, loss in losses.items()}
    ones = {name: torch.ones(()) for name in losses}
    step = objective.combine(gradients, ones)
    (expected,) = torch.autograd.grad(xe_kl_loss(z, inputs.teacher, inputs.labels), z)
    torch.testing.assert_close(step.view_as(expected), expected, atol=1e-8, rtol=0)  # L + 1e-8


@pytest.mark.parametrize("normalise", [False, True])
def test_20_measured_progress_is_the_min_norm_gradient_to_first_order(normalise):
    """delta / eta = G pi / c for a small step, with c = sum pi_i / L_i, or 1 without normalisation."""
    generator = torch.Generator().manual_seed(3)
    point = torch.randn(5, generator=generator, dtype=torch.float64)
    matrices = torch.randn(2, 5, 5, generator=generator, dtype=torch.float64)

    def losses(theta):
        return torch.stack([0.5 + (matrix @ theta).square().sum() for matrix in matrices])

    log_weights = torch.tensor([0.3, -0.4], dtype=torch.float64)
    pi, before = log_weights.softmax(0), losses(point)
    jacobian = torch.autograd.functional.jacobian(losses, point)
    step = effective_weights(pi, before, normalise=normalise) @ jacobian
    eta = 1e-7
    log_jacobian = jacobian / before.unsqueeze(-1)
    expected = log_jacobian @ log_jacobian.T @ pi / ((pi / before).sum() if normalise else 1)
    delta = (before.log() - losses(point - eta * step).log()) / eta
    torch.testing.assert_close(delta, expected, atol=0, rtol=1e-5)
    found = amortised_gradient(log_weights, before, losses(point - eta * step)) / eta
    torch.testing.assert_close(found, (pi.diag() - pi.outer(pi)) @ expected, atol=1e-6, rtol=1e-4)


def test_21_tpkd_with_nothing_conditional_to_learn_is_ce():
    z, zt, y = make_pairs("equal-conditional", 100, 7, seed=6)
    tpkd = rows(lambda z: tpkd_loss(z, zt, y, reduction="none"), z)
    assert_same(tpkd, rows(lambda z: cross_entropy_loss(z, y, reduction="none"), z), 1e-13)


def test_21_two_classes_have_nothing_conditional_to_learn():
    """The reason why TPKD refuses two classes: the loss would be plain cross-entropy."""
    with pytest.raises(ValueError, match=r"use .*cross-entropy"):
        tpkd_loss(Z[:, :2], ZT[:, :2], Y % 2)


def test_22_safe_full_kl_in_a_blocked_state_is_ce():
    z, zt, y = make_pairs("blocked", 100, 7, seed=7)
    direction = named_direction("safe-full-kl", z, zt, y)
    torch.testing.assert_close(direction, named_direction("ce", z, zt, y), atol=1e-13, rtol=0)
    tpkd = named_direction("tpkd", z, zt, y)
    assert (tpkd - direction).abs().amax(-1).min() > 1e-4


def test_23_constants_do_not_matter_to_probabilities_but_to_dhkd():
    """The battery shifts every objective; here the loss of DHKD must see the constant."""
    assert not torch.allclose(BinaryKLNorm()(Z + 1, ZT), BinaryKLNorm()(Z, ZT))
    torch.testing.assert_close(kd_loss(Z + 1, ZT - 2, Y), kd_loss(Z, ZT, Y))


def test_24_kd_at_high_temperature_matches_centred_logits():
    _, gradient = rows(lambda z: kd_loss(z, ZT, Y, temperature=1e5, ce_weight=0.0, reduction="none"))
    centred = (Z - Z.mean(-1, keepdim=True)) - (ZT - ZT.mean(-1, keepdim=True))
    torch.testing.assert_close(gradient, centred / 7, atol=1e-3, rtol=1e-3)  # next order: logits^2 / T


def test_25_two_micro_batches_are_one_batch():
    """Exact with the count of the whole batch (the battery does every objective); and the mean of two equal halves."""
    for loss in (tpkd_loss, kd_loss, dkd_loss, kl_dist_loss):
        whole = loss(Z, ZT, Y)
        halves = [loss(Z[half], ZT[half], Y[half]) for half in (slice(0, 100), slice(100, 200))]
        torch.testing.assert_close(sum(halves) / 2, whole, atol=1e-12, rtol=0)


def test_cross_entropy_is_torchs():
    labels = Y.masked_fill(Y == 3, -100)
    assert_same(
        rows(lambda z: cross_entropy_loss(z, labels, reduction="none")),
        rows(lambda z: cross_entropy(z, labels, reduction="none")),
        atol=0,
    )
    torch.testing.assert_close(cross_entropy_loss(Z, labels), cross_entropy(Z, labels), atol=1e-15, rtol=0)
