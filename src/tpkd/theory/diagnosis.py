"""What can this teacher still teach this student, and at what price: every answer about an output in one pass."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from tpkd.geometry.cone import least_prefix_mean
from tpkd.geometry.constants import PAPER_BETA, POTENTIAL_LABEL_WEIGHT
from tpkd.geometry.correct import num_correct
from tpkd.geometry.directions import accurate_difference, check_beta
from tpkd.geometry.divergences import binary_kl_divergence, kl_divergence
from tpkd.geometry.inputs import check_positive, first_place
from tpkd.geometry.top_k import TopK, check_top_k
from tpkd.theory.blocking import pair_is_blocked
from tpkd.theory.compensation import pair_transfer_cost
from tpkd.theory.pair import Pair, split_pair
from tpkd.theory.truncated import BOUNDS, TruncatedPair, split_truncated
from tpkd.theory.vectors import inner


@dataclass(frozen=True)
class Diagnosis:
    """The state of each example between its student and its teacher; losses and costs in nats."""

    blocked: Bool[Tensor, "*batch"]
    """No prediction that keeps every margin imitates the teacher more closely (theorem 1)."""
    confidence: Float[Tensor, "*batch"]
    """rho, the student's probability of the label, or of the support of a soft label."""
    teacher_confidence: Float[Tensor, "*batch"]
    """tau, the teacher's probability of the same."""
    label_loss: Float[Tensor, "*batch"]
    """-log rho, or the cross-entropy of a soft label."""
    imitation_loss: Float[Tensor, "*batch"]
    """KL(t || p)."""
    conditional_loss: Float[Tensor, "*batch"]
    """KL(q || r), what is left to learn of the relations among incorrect classes."""
    transfer_cost: Float[Tensor, "*batch"]
    """D_inf(q || r), the least rise in log-odds at which all of it can be had with no margin lowered (theorem 2)."""
    min_confidence: Float[Tensor, "*batch"]
    """a_min, the confidence after that rise."""
    compensation: Float[Tensor, "*batch"]
    """l, the push of the safe direction on the correct class."""
    retention: Float[Tensor, "*batch"]
    """u'd / ||u||^2, the share of first-order conditional descent that protection keeps; 1 where r = q (theorem 3)."""
    update_cosine: Float[Tensor, "*batch"]
    """cos(g_Phi, v), how well the protected step points down the joint potential (theorem 4); 1 where both vanish."""
    num_classes: int
    """K."""
    bounds: dict[str, str] = field(default_factory=lambda: dict.fromkeys(Diagnosis.names(), "exact"))
    """What each field says about the teacher: its "exact" value, a "lower" or "upper" bound of it, or what holds for
    the teacher "completed" by the student. All "exact" unless the teacher was truncated."""
    label_known: Bool[Tensor, "*batch"] | None = None
    """Whether a truncated teacher gives the label's log-probability; None for a whole teacher. Where it does not,
    `teacher_confidence` is nan, and losses and costs are those of the kept classes alone, which bound nothing."""

    @property
    def num_without_label(self) -> int:
        """Examples for which a truncated teacher does not give the label's log-probability."""
        return 0 if self.label_known is None else int((~self.label_known).sum())

    def summary(self) -> dict[str, Any]:
        """Plain numbers over all examples; means over an empty set are None.

        Returns:
            `examples`, `num_classes`, `blocked_share`, `blocked` (means of `conditional_loss` and `transfer_cost` over
            the blocked examples) and `all` (the mean of every field). For a truncated teacher also `bounds`, and
            `without_label`: the number of examples without the label's log-probability, and their mean loss and cost
            over the kept classes. Those examples are in no mean of a bound or of `teacher_confidence`; and the means
            in `blocked` are then over examples that may be blocked, and bound nothing.
        """
        values = {name: getattr(self, name).reshape(-1) for name in self.names()}
        known = torch.ones_like(values["blocked"]) if self.label_known is None else self.label_known.reshape(-1)
        over = {name: value[known] if self._needs_label(name) else value for name, value in values.items()}
        blocked = values["blocked"] & known
        found = {
            "examples": known.numel(),
            "num_classes": self.num_classes,
            "blocked_share": _mean(over["blocked"]),
            "blocked": {name: _mean(values[name][blocked]) for name in ("conditional_loss", "transfer_cost")},
            "all": {name: _mean(value) for name, value in over.items()},
        }
        if self.label_known is None:
            return found
        kept = {name: _mean(values[name][~known]) for name in ("conditional_loss", "transfer_cost")}
        return found | {"bounds": self.bounds, "without_label": {"examples": self.num_without_label, **kept}}

    def _needs_label(self, name: str) -> bool:
        return self.bounds[name] in ("lower", "upper") or name == "teacher_confidence"

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain lists and numbers; for a truncated teacher with `bounds` and `label_known`."""
        plain = {"num_classes": self.num_classes} | {name: getattr(self, name).tolist() for name in self.names()}
        if self.label_known is None:
            return plain
        # JSON has no nan.
        plain["teacher_confidence"] = _with_none(self.teacher_confidence)
        return plain | {"bounds": self.bounds, "label_known": self.label_known.tolist()}

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The per-example fields."""
        return tuple(field.name for field in fields(cls) if field.name not in ("num_classes", "bounds", "label_known"))


def diagnose(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
    *,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
) -> Diagnosis:
    """Everything the theory says about a student, its teacher and the labels, for each example.

    Paper: sections 3, 4 and 5 in one pass; each field agrees with the function of its own statement. `compensation`,
    `retention` and `update_cosine` are of the step, and so of `temperature` (EXTENSIONS 3), the last also of `beta`;
    losses, blocking and price speak of the predictions themselves and do not change with either.

    EXTENSIONS 1: labels may be probabilities. Confidence is then the sum over their support, the label loss the soft
    cross-entropy, and everything else is about the classes outside the support. EXTENSIONS 2: the teacher may be a
    `tpkd.geometry.TopK`; `bounds` says what each field is worth, and rows without the label's log-probability enter no
    mean of a bound. Give it `rest_log_probs` where you can: what one minus rounded probabilities loses, bounds lose.

    Shapes: logits `(*batch, K)`, labels `(*batch)` or probabilities `(*batch, K)`; every field is `(*batch)`. Values
    are looked at: probabilities in the place of logits are refused by argument, and a logit that is not finite by
    argument and row.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> state = diagnose(student, teacher, torch.tensor([0]))
        >>> state.blocked, state.transfer_cost, state.min_confidence
        (tensor([True]), tensor([0.6650]), tensor([0.9459]))
        >>> summary = state.summary()
        >>> summary["examples"], summary["blocked_share"], round(summary["blocked"]["conditional_loss"], 4)
        (1, 1.0, 0.1717)
        >>> top_k = TopK(teacher[:, [0, 2]], torch.tensor([[0, 2]]))
        >>> cut = diagnose(student, top_k, torch.tensor([0]))
        >>> cut.transfer_cost, cut.bounds["transfer_cost"]
        (tensor([0.6650]), 'lower')
    """
    check_beta(beta)
    check_positive("temperature", temperature)
    if isinstance(teacher_logits, TopK):
        return _diagnose_truncated(student_logits, teacher_logits, labels, beta, temperature)
    pair = split_pair(student_logits, teacher_logits, labels, masks=False)
    for name, logits in (("student_logits", student_logits), ("teacher_logits", teacher_logits)):
        _check_finite(name, logits)
    for name, logits in (("student_logits", student_logits), ("teacher_logits", teacher_logits)):
        _refuse_probabilities(name, logits)
    return diagnose_pair(pair, beta=beta, temperature=temperature)


def _diagnose_truncated(
    student_logits: Tensor, top_k: TopK, labels: Tensor, beta: float, temperature: float
) -> Diagnosis:
    cut = split_truncated(student_logits, top_k, labels)
    check_top_k(top_k, student_logits.shape[-1], name="teacher_logits")
    _check_finite("student_logits", student_logits)
    _refuse_probabilities("student_logits", student_logits)
    return diagnose_truncated_pair(cut, beta=beta, temperature=temperature)


def diagnose_truncated_pair(cut: TruncatedPair, *, beta: float = PAPER_BETA, temperature: float = 1.0) -> Diagnosis:
    """`diagnose` of a truncated teacher and a student that are split already and known to be right."""
    state = diagnose_pair(cut.pair, beta=beta, temperature=temperature)
    return replace(
        state,
        blocked=cut.blocked,
        imitation_loss=cut.imitation_loss,
        teacher_confidence=torch.where(cut.label_known, state.teacher_confidence, torch.nan),
        bounds=dict(BOUNDS),
        label_known=cut.label_known,
    )


def diagnose_pair(pair: Pair, *, beta: float = PAPER_BETA, temperature: float = 1.0) -> Diagnosis:
    """`diagnose` of predictions that are split already and known to be finite."""
    student, teacher = pair.student, pair.teacher
    q, cost = teacher.conditional, pair_transfer_cost(pair)
    conditional_loss = inner(q, pair.log_ratio).clamp(min=0)
    imitation_loss = binary_kl_divergence(teacher.log_odds, student.log_odds)
    imitation_loss = imitation_loss + teacher.log_residual.exp() * conditional_loss
    label_loss = torch.zeros_like(student.log_odds) - student.log_confidence
    if pair.inside is not None:
        inside = kl_divergence(pair.inside.teacher, pair.inside.student)
        imitation_loss = imitation_loss + teacher.log_confidence.exp() * inside
        log_shares = pair.inside.student.masked_fill(pair.labels == 0, 0.0)
        label_loss = label_loss - inner(pair.labels, log_shares)
    step = _Step.of(pair, q, temperature)
    return Diagnosis(
        blocked=pair_is_blocked(pair),
        confidence=student.log_confidence.exp(),
        teacher_confidence=teacher.log_confidence.exp(),
        label_loss=label_loss,
        imitation_loss=imitation_loss,
        conditional_loss=conditional_loss,
        transfer_cost=cost,
        min_confidence=(student.log_odds + cost).sigmoid(),
        compensation=step.compensation,
        retention=step.retention(),
        update_cosine=step.update_cosine(pair, beta),
        num_classes=q.shape[-1] + 1,
    )


_Vector = tuple[Tensor, Tensor]
"""A direction as its incorrect and its correct coordinates: with labels the cosine needs no K-wide copy."""


@dataclass(frozen=True)
class _Step:
    """The conditional direction u and its safe part d, off the correct classes, where u is 0 and d is -l."""

    difference: Tensor
    safe: Tensor
    compensation: Tensor

    @classmethod
    def of(cls, pair: Pair, q: Tensor, temperature: float) -> "_Step":
        log_r, log_q = pair.compared, pair.teacher.log_conditional
        r = pair.student.conditional if log_r is pair.student.log_conditional else log_r.exp()
        if temperature != 1:
            log_r, log_q = ((logs / temperature).log_softmax(-1) for logs in (log_r, log_q))
            r, q = log_r.exp(), log_q.exp()
        difference = temperature * accurate_difference(log_r, log_q, r, q)
        zero = torch.zeros_like(pair.student.log_odds)
        zeta = least_prefix_mean(zero, _ascending(difference), num_correct(pair.labels))
        return cls(difference, difference.maximum(zeta.unsqueeze(-1)), zero - zeta)

    def retention(self) -> Tensor:
        # u_y = 0, so the correct coordinates add nothing. Scaled first: squares of a nearly finished student underflow.
        scale = self.difference.abs().amax(-1, keepdim=True)
        u = self.difference / scale
        return torch.where(scale.squeeze(-1) > 0, inner(u, self.safe / scale) / inner(u, u), 1.0)

    def update_cosine(self, pair: Pair, beta: float) -> Tensor:
        h, h_correct = _label_step(pair)
        d_correct = -self.compensation.unsqueeze(-1)
        if pair.inside is not None:
            d_correct = d_correct * (pair.labels > 0)
        gradient = _scaled(POTENTIAL_LABEL_WEIGHT * h + self.difference, POTENTIAL_LABEL_WEIGHT * h_correct)
        update = _scaled(h + beta * self.safe, h_correct + beta * d_correct)
        cosine = _inner(gradient, update) / (_inner(gradient, gradient) * _inner(update, update)).sqrt()
        return torch.where(cosine.isnan(), 1.0, cosine)


def _label_step(pair: Pair) -> _Vector:
    """h: (1 - rho) r off the correct classes; -(1 - rho) at a label, p_y - s_y on the support of a soft label s."""
    student, residual = pair.student, pair.student.log_residual.exp().unsqueeze(-1)
    others = residual * student.conditional
    if pair.inside is None:
        return others, -residual
    shares = pair.inside.student.exp()
    return others, student.log_confidence.exp().unsqueeze(-1) * (shares - pair.labels) - residual * pair.labels


def _scaled(others: Tensor, correct: Tensor) -> _Vector:
    scale = others.abs().amax(-1, keepdim=True).maximum(correct.abs().amax(-1, keepdim=True))
    return others / scale, correct / scale


def _inner(a: _Vector, b: _Vector) -> Tensor:
    return inner(a[0], b[0]) + inner(a[1], b[1])


def _ascending(values: Tensor) -> Tensor:
    # NumPy's vectorised sort takes a tenth of the time of torch's, which also keeps where each value came from.
    if values.device.type == "cpu" and not values.requires_grad:
        return torch.from_numpy(np.sort(values.numpy(), axis=-1))
    return values.sort(-1).values


def _mean(values: Tensor) -> float | None:
    return values.double().mean().item() if values.numel() else None


def _with_none(values: Tensor) -> Any:
    """Nested lists with None in the place of nan."""
    if values.ndim:
        return [_with_none(value) for value in values]
    return None if values.isnan() else values.item()


def are_probabilities(values: Float[Tensor, "*batch K"], dtype: torch.dtype | None = None) -> bool:
    """Whether every row, of at least one, is nonnegative and sums to 1, as no logits of a network do.

    Args:
        values: rows.
        dtype: the precision they were computed in, where it is not their own.

    Example:
        >>> are_probabilities(torch.tensor([[0.0, 0.2, 0.8]])), are_probabilities(torch.tensor([[0.0, 0.2, 0.9]]))
        (True, False)
    """
    tolerance = 1e-2 if (dtype or values.dtype) in (torch.float16, torch.bfloat16) else 1e-5
    if not values.numel() or not (values >= 0).all():
        return False
    return bool(((values.double().sum(-1) - 1).abs() <= tolerance).all())


def _refuse_probabilities(name: str, logits: Tensor) -> None:
    if are_probabilities(logits):
        found = "probabilities (nonnegative, with sum 1)"
        raise ValueError(f"{name}: expected logits, got {found}; pass their logarithms")


def _check_finite(name: str, logits: Tensor) -> None:
    finite = logits.isfinite()
    if not finite.all():
        *row, column = (~finite).nonzero()[0].tolist()
        value = logits[(*row, column)].item()
        place = first_place(~finite.all(-1))
        raise ValueError(f"{name}: expected finite logits, got {value} at class {column} of {place}")
