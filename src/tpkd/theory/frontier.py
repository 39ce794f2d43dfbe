"""The finite-compensation frontier: the best partial transfer that a given rise in confidence can buy."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from tpkd.geometry.correct import as_wide, check_single, drop_target, is_set, over_batch
from tpkd.geometry.divergences import kl_divergence, log_ratio
from tpkd.geometry.split import split
from tpkd.theory.compensation import pair_transfer_cost
from tpkd.theory.pair import Pair, as_grid, split_pair


@dataclass(frozen=True)
class FrontierPoint:
    """The best conditional distribution within a budget, and what is left to learn there."""

    log_conditional: Float[Tensor, "*grid others"]
    """log x*; K wide where the labels are sets, with -inf on them."""
    value: Float[Tensor, "*grid"]
    """V(B) = KL(q || x*)."""


def frontier(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    budget: float | Float[Tensor, "*grid"],
) -> FrontierPoint:
    """The least conditional loss that a budget of correct-class log-odds can buy, with every margin kept.

    Paper: eq:budget-optimum, argmin KL(q || x) over x_j <= e^B r_j is x_j = min(e^B r_j, q_j / lambda). The classes at
    their cap are those with the largest log(q_j / r_j); lambda normalises. One sort and sums in log space. EXTENSIONS
    1: with a set of correct classes the budget is one of the log-odds of the set.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; `budget` >= 0 is a number or broadcasts against the batch shape, so
    a grid is a leading axis `(G, 1)`. Returns `log_conditional` `(*grid, K-1)` and `value` `(*grid)`. Labels may be a
    mask or probabilities `(*batch, K)`: then `log_conditional` is `(*grid, K)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> frontier(student, teacher, torch.tensor([0]), torch.tensor([[0.0], [0.3], [0.7]])).value
        tensor([[0.1717],
                [0.0644],
                [0.0000]])
    """
    return frontier_at(order_by_gap(split_pair(student_logits, teacher_logits, labels)), budget)


@dataclass(frozen=True)
class Ordered:
    """What the frontier needs at every budget: incorrect classes of each example by falling c_j = log(q_j / r_j)."""

    pair: Pair
    cost: Float[Tensor, "*batch"]
    log_ratio: Float[Tensor, "*batch others"]
    """c."""
    log_r_upto: Float[Tensor, "*batch others"]
    log_r_from: Float[Tensor, "*batch others"]
    log_q_from: Float[Tensor, "*batch others"]
    """Masses up to each class, and from each class on, as logarithms."""
    log_mass: Float[Tensor, "*batch rest"]
    log_excess: Float[Tensor, "*batch rest"]
    """log A_k, which grows, and log(1 - A_k), which falls: see `_count_capped`."""
    q_upto: Float[Tensor, "*batch others"]
    loss_upto: Float[Tensor, "*batch others"]
    """Sums of q_j and of q_j c_j up to each class."""


def order_by_gap(pair: Pair) -> Ordered:
    """Sort and sum once, for `frontier_at` at any number of budgets.

    Example:
        >>> order_by_gap(split_pair(torch.zeros(1, 3), torch.zeros(1, 3), torch.tensor([0]))).cost
        tensor([0.])
    """
    c, order = pair.log_ratio.sort(-1, descending=True)
    log_r, log_q = pair.student.log_conditional.gather(-1, order), pair.teacher.log_conditional.gather(-1, order)
    log_r_upto, log_r_from, log_q_from = log_r.logcumsumexp(-1), _log_sum_from(log_r), _log_sum_from(log_q)
    ahead = c[..., :-1]
    # Not logaddexp: what its last bits are depends on the number of threads.
    log_mass = torch.stack([log_r_upto[..., :-1], log_q_from[..., 1:] - ahead]).logsumexp(0)
    # e^c_k (1 - A_k) grows from k + 1 to k by (e^c_k - e^c_{k+1}) times the r-mass after k.
    steps = log_r_from[..., 1:] + ahead + (-c.diff(dim=-1).expm1()).log()
    steps = torch.where(ahead == -torch.inf, -torch.inf, steps)  # classes that the teacher rules out do not differ
    log_excess = _log_sum_from(steps) - ahead
    q = log_q.exp()
    loss = (q * c).masked_fill(q == 0, 0.0)
    return Ordered(
        pair,
        pair_transfer_cost(pair),
        c,
        log_r_upto,
        log_r_from,
        log_q_from,
        # Never at their cap: classes that the teacher rules out.
        log_mass.masked_fill(log_mass.isnan(), torch.inf),
        log_excess.masked_fill(log_excess.isnan(), -torch.inf),
        q.cumsum(-1),
        loss.cumsum(-1),
    )


def frontier_at(ordered: Ordered, budget: float | Float[Tensor, "*grid"]) -> FrontierPoint:
    """`frontier` of examples that are sorted already.

    Example:
        >>> pair = split_pair(torch.zeros(1, 3), torch.zeros(1, 3), torch.tensor([0]))
        >>> frontier_at(order_by_gap(pair), 0.5).value
        tensor([0.])
    """
    pair, cost = ordered.pair, ordered.cost
    B = as_grid("budget", budget, cost, low=0.0, high=float("inf"))
    complete = cost.unsqueeze(-1) <= B
    # Beyond the cost nothing changes, and an infinite budget has no e^B.
    B = B.minimum(cost.unsqueeze(-1))
    log_gain = (-(-B).expm1()).log()
    log_multiplier, free_growth = _log_multiplier(ordered, B, log_gain, _count_capped(ordered, B, log_gain))
    # Where all that is free is what the teacher rules out, it shares the rest as the student has it.
    is_ruled_out = (pair.log_ratio == -torch.inf) & (log_multiplier == -torch.inf)
    growth = B.minimum(torch.where(is_ruled_out, free_growth, pair.log_ratio - log_multiplier))
    log_x = torch.where(complete, pair.teacher.log_conditional, pair.student.log_conditional + growth)
    value = kl_divergence(pair.teacher.log_conditional, log_x)
    log_x = as_wide(log_x, over_batch(pair.labels, log_x.shape[:-1]), -torch.inf)
    return FrontierPoint(log_x, torch.where(complete.squeeze(-1), 0.0, value))


def frontier_values(ordered: Ordered, budgets: Float[Tensor, " G"]) -> Float[Tensor, "*batch G"]:
    """V(B) of examples that are sorted already, from sums that are there: no pass over the classes per budget.

    V(B) = sum_{j <= k} q_j (c_j - B) + log lambda sum_{j > k} q_j, where the first k classes are at their cap.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> ordered = order_by_gap(split_pair(student, teacher, torch.tensor([0])))
        >>> frontier_values(ordered, torch.tensor([0.0, 0.3, 0.7]))
        tensor([[0.1717, 0.0644, 0.0000]])
    """
    cost = ordered.cost.unsqueeze(-1)
    B = budgets.minimum(cost)
    log_gain = (-(-B).expm1()).log()
    by_mass = torch.searchsorted(ordered.log_mass, -B)
    by_excess = torch.searchsorted(-ordered.log_excess, -log_gain)
    capped = torch.where(math.log(2) < B, by_mass, by_excess)
    log_multiplier, _ = _log_multiplier(ordered, B, log_gain, capped)
    last = (capped - 1).clamp(min=0)
    at_caps = torch.where(capped > 0, _take(ordered.loss_upto, last) - B * _take(ordered.q_upto, last), 0.0)
    q_free = _take(ordered.log_q_from, capped).exp()
    value = at_caps + torch.where(q_free > 0, q_free * log_multiplier, 0.0)
    return torch.where(cost <= budgets, 0.0, value.clamp(min=0))


def _log_multiplier(
    ordered: Ordered,
    B: Float[Tensor, "*grid G"],
    log_gain: Float[Tensor, "*grid G"],
    capped: Int[Tensor, "*grid G"],
) -> tuple[Float[Tensor, "*grid G"], Float[Tensor, "*grid G"]]:
    """log lambda: the caps are the first classes by falling c_j = log(q_j / r_j), and lambda normalises the rest.

    Returned with how much the mass of the rest grows, as a logarithm.
    """
    c = ordered.log_ratio
    # lambda = (q-mass below the caps) / (1 - e^B r-mass at the caps), and 1 - e^B R = (1 - R) - (e^B - 1) R.
    last = (capped - 1).clamp(min=0)
    log_r_capped = torch.where(capped > 0, _take(ordered.log_r_upto, last), -torch.inf)
    log_r_free = _take(ordered.log_r_from, capped)
    free_growth = (-(B + log_gain + log_r_capped - log_r_free).clamp(max=0).expm1()).log()
    log_left = log_r_free + free_growth
    # Rounding may not carry lambda past the caps that were found: it stays between their neighbours.
    upper = torch.where(capped > 0, _take(c, last) - B, torch.inf)
    return (_take(ordered.log_q_from, capped) - log_left).clamp(min=_take(c, capped) - B, max=upper), free_growth


def _count_capped(ordered: Ordered, B: Tensor, log_gain: Tensor) -> Tensor:
    """How many classes are at their cap: class k is when A_k = sum_{j<=k} r_j + e^-c_k sum_{j>k} q_j < e^-B.

    For a small budget both sides are close to one, and the test is 1 - A_k = sum_j r_j [1 - e^(c_j - c_k)]_+ > 1 - e^-B
    instead. Every sum has nonnegative terms only, so that neither form loses digits.
    """
    is_large = math.log(2) < B
    return torch.where(is_large, ordered.log_mass < -B, ordered.log_excess > log_gain).sum(-1, keepdim=True)


def _log_sum_from(log_values: Tensor) -> Tensor:
    return log_values.flip(-1).logcumsumexp(-1).flip(-1)


def _take(values: Tensor, index: Tensor) -> Tensor:
    return values.expand(*index.shape[:-1], values.shape[-1]).gather(-1, index)


def is_budget_feasible(
    log_conditional: Float[Tensor, "*batch others"],
    student_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    budget: float | Float[Tensor, "*grid"],
    *,
    tolerance: float | None = None,
) -> Bool[Tensor, "*feasible"]:
    """Whether a conditional distribution can be had for this rise in log-odds with no margin lowered.

    Paper: eq:budget-feasible, sum_j x_j = 1 and x_j <= e^B r_j; both up to `tolerance` in the logarithm, by
    default a few roundings of the dtype.

    Shapes: `log_conditional` `(*batch, K-1)`, logits `(*batch, K)`, labels and result `(*batch)`; many candidates or a
    grid of budgets are leading axes. With a mask or probabilities `(*batch, K)` as labels, `log_conditional` is
    `(*batch, K)`, -inf on the set.

    Example:
        >>> student, x = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.6, 0.4]]).log()
        >>> is_budget_feasible(x, student, torch.tensor([0]), 0.30, tolerance=1e-6)
        tensor([True])
        >>> is_budget_feasible(x, student, torch.tensor([0]), 0.28, tolerance=1e-6)
        tensor([False])
    """
    z, y = check_single("student_logits", student_logits, labels)
    log_r = split(z, y).log_conditional
    if log_conditional.shape[-1] != log_r.shape[-1]:
        raise ValueError(f"log_conditional: expected {log_r.shape[-1]} classes, got {log_conditional.shape[-1]}")
    B = as_grid("budget", budget, log_r[..., 0], low=0.0, high=float("inf"))
    if tolerance is None:
        # A logarithm of size 700 is known to 700 roundings of one; that of zero is known.
        size = log_r.masked_fill(log_r == -torch.inf, 0.0).abs().amax(-1, keepdim=True)
        slack = 64 * torch.finfo(log_r.dtype).eps * size.clamp(min=1)
    else:
        slack = torch.full_like(log_r[..., :1], tolerance)
    normalized = log_conditional.logsumexp(-1).abs() <= slack.squeeze(-1)
    return normalized & (log_ratio(log_conditional, log_r) <= B + slack).all(-1)


@dataclass(frozen=True)
class FrontierEnds:
    """Where the frontier starts and where it reaches zero."""

    start: Float[Tensor, "*batch"]
    """V(0) = KL(q || r)."""
    completing_budget: Float[Tensor, "*batch"]
    """The least B with V(B) = 0: the transfer cost."""


def frontier_ends(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]
) -> FrontierEnds:
    """What is left to learn without any rise in confidence, and the rise at which nothing is left.

    Paper: eq:budget-endpoints, V(0) = KL(q || r), and V(B) = 0 exactly when B >= D_inf(q || r).

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> frontier_ends(student, teacher, torch.tensor([0]))
        FrontierEnds(start=tensor([0.1717]), completing_budget=tensor([0.6650]))
    """
    pair = split_pair(student_logits, teacher_logits, labels)
    start = kl_divergence(pair.teacher.log_conditional, pair.student.log_conditional)
    return FrontierEnds(start, pair_transfer_cost(pair))


@dataclass(frozen=True)
class LogFormPoint:
    """A point of the frontier problem in logarithms: its objective and its two constraints, met when not positive."""

    value: Float[Tensor, "*batch"]
    """KL(q || r) - q'Y."""
    excess_mass: Float[Tensor, "*batch"]
    """log sum_j r_j e^Y_j."""
    excess_budget: Float[Tensor, "*batch"]
    """max_j Y_j - B."""


def frontier_log_form(
    log_growth: Float[Tensor, "*batch others"],
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    budget: float | Float[Tensor, "*batch"],
) -> LogFormPoint:
    """The frontier as a convex problem in Y = log(x / r), affine objective and constraints convex in (Y, B).

    Paper: eq:budget-log-form, V(B) = min_Y KL(q || r) - q'Y with sum_j r_j e^Y_j <= 1 and Y_j <= B.

    Shapes: `log_growth` `(*batch, K-1)`, logits `(*batch, K)`, labels `(*batch)`; every field is `(*batch)`. With a
    mask or probabilities `(*batch, K)` as labels, `log_growth` is `(*batch, K)`; what it says on the set is not read.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> frontier_log_form(torch.zeros(1, 2), student, teacher, torch.tensor([0]), 0.5).value
        tensor([0.1717])
    """
    pair = split_pair(student_logits, teacher_logits, labels)
    B = as_grid("budget", budget, pair.student.log_odds, low=0.0, high=float("inf"))
    log_q, log_r = pair.teacher.log_conditional, pair.student.log_conditional
    if is_set(pair.labels):
        log_growth = drop_target(log_growth, pair.labels)
    gained = log_q.exp() * log_growth
    if is_set(pair.labels):  # empty places say nothing, where 0 * -inf would
        gained = gained.masked_fill(log_q == -torch.inf, 0.0)
    return LogFormPoint(
        value=kl_divergence(log_q, log_r) - gained.sum(-1),
        excess_mass=(log_r + log_growth).logsumexp(-1),
        excess_budget=log_growth.amax(-1) - B.squeeze(-1),
    )
