import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar

import oracles
from strategies import make_pairs
from tpkd.geometry import (
    binary_kl_divergence,
    conditional_loss,
    imitation_loss,
    in_safe_set,
    join,
    label_loss,
    margins,
    split,
)
from tpkd.theory import (
    ce_only_imitation_loss,
    ce_only_optimum,
    log_separation_family,
    log_transfer_path,
    min_confidence,
    min_log_odds,
    transfer_cost,
    transfer_endpoint,
)

POSITIONS = torch.linspace(0, 1, 21, dtype=torch.float64).unsqueeze(-1)
PATH_KINDS = ["random", "ties", "blocked", "certain", "certain-both", "wrong", "sparse", "tiny"]


def least_log_odds(student, log_target, label):
    """The least log-odds of a prediction with this conditional distribution and no margin lowered, by SLSQP over z'."""
    size = len(student)
    free = [j for j in range(size) if j != label]
    lead = student[label] - student[free]

    def log_odds(z):
        return z[label] - oracles.logsumexp(z[free])

    constraints = [
        # All but one class: the last follows from normalisation, and a redundant constraint stalls the solver.
        {"type": "eq", "fun": lambda z: (z[free] - oracles.logsumexp(z[free]) - log_target)[1:]},
        {"type": "ineq", "fun": lambda z: (z[label] - z[free]) - lead},
    ]
    start = np.zeros(size)
    start[free] = log_target
    start[label] = student[label] - oracles.logsumexp(student[free]) + 10.0
    solved = minimize(log_odds, start, method="SLSQP", constraints=constraints, options={"ftol": 1e-14, "maxiter": 500})
    return log_odds(solved.x)


@pytest.mark.parametrize("num_classes", [3, 10])
def test_path_is_the_direct_constrained_optimum(num_classes):
    """thm:cost, eq:path: at every point of the path no smaller confidence keeps all margins."""
    student, teacher, labels = make_pairs("tiny", 6, num_classes, seed=0)
    student, teacher = 1500 * student, 1500 * teacher
    for s in (0.0, 0.3, 1.0):
        path = split(log_transfer_path(student, teacher, labels, s), labels)
        for i, y in enumerate(labels.tolist()):
            least = least_log_odds(student[i].numpy(), path.log_conditional[i].numpy(), y)
            assert path.log_odds[i].item() == pytest.approx(least, abs=1e-6)


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_cost_and_log_odds_agree_with_loops(num_classes):
    """eq:mincost by its printed formula, one example at a time."""
    student, teacher, labels = make_pairs("random", 200, num_classes, seed=1)
    cost, log_odds = transfer_cost(student, teacher, labels), min_log_odds(student, teacher, labels)
    least = min_confidence(student, teacher, labels)
    for i, y in enumerate(labels.tolist()):
        log_r, log_q = (oracles.conditional(z[i].numpy(), y) for z in (student, teacher))
        expected = max(b - a for a, b in zip(log_r, log_q, strict=True))
        assert cost[i].item() == pytest.approx(expected, rel=1e-12, abs=1e-12)
        residual, confidence = (
            oracles.residual(student[i].numpy(), y),
            math.exp(oracles.log_softmax(student[i].numpy())[y]),
        )
        printed = confidence * math.exp(expected) / (residual + confidence * math.exp(expected))
        assert least[i].item() == pytest.approx(printed, rel=1e-9)
        assert log_odds[i].item() == pytest.approx(math.log(confidence / residual) + expected, rel=1e-9)


def test_log_odds_are_exact_where_confidence_rounds_to_one():
    student, teacher, labels = make_pairs("certain", 100, 10, seed=2)
    expected = split(student, labels).log_odds + transfer_cost(student, teacher, labels)
    assert torch.equal(min_log_odds(student, teacher, labels), expected)
    assert (min_confidence(student, teacher, labels) == 1).any()


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_cost_is_zero_exactly_when_relations_agree(num_classes):
    equal = make_pairs("equal-conditional", 100, num_classes, seed=3)
    assert (transfer_cost(*equal) < 1e-13).all()
    differ = make_pairs("random", 100, num_classes, seed=3)
    assert (transfer_cost(*differ) > 0).all()
    assert (min_log_odds(*differ) > split(differ.student, differ.labels).log_odds).all()


@pytest.mark.parametrize("num_classes", [3, 10, 100])
@pytest.mark.parametrize("kind", PATH_KINDS)
def test_path_keeps_every_margin_and_ends_at_the_endpoint(num_classes, kind):
    """thm:cost: margins never fall along the path, conditional KL falls to zero, and the end is p*."""
    student, teacher, labels = make_pairs(kind, 60, num_classes, seed=4)
    path = log_transfer_path(student, teacher, labels, POSITIONS)
    assert path.shape == (21, 60, num_classes)
    torch.testing.assert_close(path.logsumexp(-1), torch.zeros(21, 60, dtype=torch.float64), rtol=0, atol=1e-13)
    scale = 1e-14 * (1 + path.abs().amax())
    assert (margins(path, labels.expand(21, 60)).diff(dim=0) >= -scale).all()
    left = conditional_loss(path, teacher.expand(path.shape), labels.expand(21, 60))
    assert (left.diff(dim=0) <= 1e-13).all()
    assert (left[-1] < 1e-13).all()
    torch.testing.assert_close(path[0], student.log_softmax(-1), rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(path[-1], transfer_endpoint(student, teacher, labels), rtol=1e-13, atol=1e-12)
    assert in_safe_set(path[-1], student, labels, tolerance=scale.item()).all()


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_path_derivatives_agree_with_autograd(num_classes):
    """Appendix A.4: the closed forms of dM_j/ds and dKL/ds."""
    student, teacher, labels = make_pairs("tiny", 40, num_classes, seed=5)
    student, teacher = 1500 * student, 1500 * teacher
    for value in (0.1, 0.5, 0.95):
        s = torch.full((40,), value, dtype=torch.float64, requires_grad=True)
        path = log_transfer_path(student, teacher, labels, s)
        r, q = (split(z, labels).log_conditional.exp() for z in (student, teacher))
        ratio, largest = q / r, (q / r).amax(-1, keepdim=True)
        margin_slope = (largest - ratio) / ((1 - value + value * largest) * (1 - value + value * ratio))
        margin = margins(path, labels)
        for j in range(min(num_classes - 1, 4)):
            (slope,) = torch.autograd.grad(margin[:, j].sum(), s, retain_graph=True)
            torch.testing.assert_close(slope, margin_slope[:, j], rtol=1e-9, atol=1e-11)
        (slope,) = torch.autograd.grad(conditional_loss(path, teacher, labels).sum(), s)
        mixed = (1 - value) * r + value * q
        torch.testing.assert_close(slope, -(1 - value) * ((q - r) ** 2 / mixed).sum(-1), rtol=1e-9, atol=1e-11)


def test_path_position_broadcasts():
    student, teacher, labels = make_pairs("random", 4, 5, seed=7)
    whole = log_transfer_path(student, teacher, labels, POSITIONS)
    each = torch.tensor([0.0, 0.25, 0.5, 1.0], dtype=torch.float64)
    mixed = log_transfer_path(student, teacher, labels, each)
    for i, row in enumerate((0, 5, 10, 20)):
        torch.testing.assert_close(mixed[i], whole[row, i])
    torch.testing.assert_close(log_transfer_path(student, teacher, labels, 0.5), whole[10])
    single = log_transfer_path(student[0], teacher[0], labels[0], POSITIONS.squeeze(-1))
    torch.testing.assert_close(single, whole[:, 0])


@pytest.mark.parametrize("position", [-0.1, 1.1, float("nan")])
def test_path_refuses_a_position_outside(position):
    with pytest.raises(ValueError, match="position: expected numbers from 0 to 1"):
        log_transfer_path(torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(1, dtype=torch.long), position)


def test_path_refuses_a_position_that_does_not_broadcast():
    with pytest.raises(ValueError, match=r"position: .* broadcasts against the batch \(2,\), got \(3,\)"):
        log_transfer_path(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), torch.zeros(3))


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_separation_family(num_classes):
    """eq:separation: label loss to 0, conditional loss 0, full imitation to infinity at the rate -(1 - tau) log e."""
    _, teacher, labels = make_pairs("tiny", 30, num_classes, seed=8)
    teacher = 1000 * teacher
    residual = torch.tensor([1e-1, 1e-10, 1e-100, 1e-300], dtype=torch.float64).unsqueeze(-1)
    family = log_separation_family(teacher, labels, residual)
    stacked = teacher.expand(family.shape), labels.expand(4, 30)
    torch.testing.assert_close(label_loss(family, stacked[1]), (-(-residual).log1p()).expand(4, 30), rtol=1e-9, atol=0)
    assert (conditional_loss(family, *stacked) < 1e-12).all()
    loss = imitation_loss(family, *stacked)
    assert (loss.diff(dim=0) > 0).all()
    teacher_residual = split(teacher, labels).log_residual.exp()
    slope = (loss[3] - loss[2]) / (200 * math.log(10))
    torch.testing.assert_close(slope, teacher_residual, rtol=1e-9, atol=0)


@pytest.mark.parametrize("residual", [0.0, 1.0, -1.0])
def test_separation_family_refuses_a_residual_outside(residual):
    with pytest.raises(ValueError, match="residual: expected numbers"):
        log_separation_family(torch.zeros(1, 3), torch.zeros(1, dtype=torch.long), residual)


@pytest.mark.parametrize("num_classes", [3, 10])
def test_ce_only_optimum_against_a_direct_solve(num_classes):
    """eq:ce-only-optimum: no prediction with p'_y >= rho imitates better."""
    student, teacher, labels = make_pairs("tiny", 30, num_classes, seed=9)
    student, teacher = 1500 * student, 1500 * teacher
    best = ce_only_optimum(student, teacher, labels)
    left = ce_only_imitation_loss(student, teacher, labels)
    torch.testing.assert_close(imitation_loss(best, teacher, labels), left, rtol=1e-10, atol=1e-13)
    assert (label_loss(best, labels) <= label_loss(student, labels) + 1e-13).all()
    raised = split(teacher, labels).log_odds < split(student, labels).log_odds
    assert 0.2 <= raised.double().mean() <= 0.8
    for i in range(30):
        low = split(student[i], labels[i]).log_odds.item()
        target = split(teacher[i], labels[i])

        def loss(log_odds, target=target):
            return binary_kl_divergence(target.log_odds, torch.tensor(log_odds, dtype=torch.float64)).item()

        solved = minimize_scalar(loss, bounds=(low, low + 30), method="bounded", options={"xatol": 1e-10})
        assert left[i].item() <= solved.fun + 1e-12
        assert left[i].item() == pytest.approx(solved.fun, abs=1e-7)
    # A random perturbation of the conditional part only adds to the loss.
    log_odds = split(best, labels).log_odds
    other = (split(teacher, labels).log_conditional + 0.3 * torch.randn(30, num_classes - 1)).log_softmax(-1)
    assert (imitation_loss(join(log_odds, other, labels), teacher, labels) > left).all()


def test_half_precision_is_computed_in_float32():
    half = torch.randn(5, 4, dtype=torch.float16)
    labels = torch.zeros(5, dtype=torch.long)
    assert transfer_cost(half, half, labels).dtype == torch.float32
    assert log_transfer_path(half, half, labels, 0.5).dtype == torch.float32
