"""The safe direction as the gradient of a local loss, and as the best step under two local budgets."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from tpkd.geometry.correct import insert_target, one_class
from tpkd.geometry.directions import directions
from tpkd.geometry.divergences import kl_divergence
from tpkd.geometry.inputs import check_positive, check_same_shape
from tpkd.geometry.split import Split, split
from tpkd.theory.pair import as_grid, split_pair, weighed


def local_clipped_loss(
    logits: Float[Tensor, "*batch K"],
    reference_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch"]:
    """A loss whose gradient at a reference output is the safe direction there.

    Paper: eq:local-clipped-loss, (1 - l) KL(q-bar || r(z)) - l logit rho(z), with l and q-bar = q~ / (1 - l) frozen at
    the reference. Away from it the safe direction clips anew, and the two may part. EXTENSIONS 3: at a temperature T^2
    times the same expression in r_T, q_T, l / T and the log-odds of softmax(z / T). For one correct class only.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; returns `(*batch)`.

    Example:
        >>> z = torch.tensor([[2.0, 1.0, 0.0]], requires_grad=True)
        >>> teacher, labels = torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([0])
        >>> local_clipped_loss(z, z, teacher, labels).sum().backward()
        >>> torch.allclose(z.grad, directions(z, teacher, labels).safe)
        True
    """
    current, log_kept, share_given = _clipped_at(logits, reference_logits, teacher_logits, labels, temperature)
    log_share = (-share_given).log1p()
    divergence = kl_divergence(log_kept - log_share.unsqueeze(-1), current.log_conditional)
    return temperature**2 * (log_share.exp() * divergence - share_given * current.log_odds)


def local_clipped_gradient(
    logits: Float[Tensor, "*batch K"],
    reference_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch K"]:
    """The gradient of `local_clipped_loss` in closed form.

    Paper: eq:local-clipped-gradient, (-l, r(z) - q~); at the reference it is d. At a temperature (-l, T (r_T(z) - q~)).
    For one correct class only.

    Example:
        >>> z, teacher = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> torch.equal(local_clipped_gradient(z, z, teacher, torch.tensor([0]))[..., 0],
        ...             directions(z, teacher, torch.tensor([0])).safe[..., 0])
        True
    """
    current, log_kept, share_given = _clipped_at(logits, reference_logits, teacher_logits, labels, temperature)
    labels = one_class("the local loss", labels, logits.shape)
    gradient = insert_target(current.log_conditional.exp() - log_kept.exp(), 0 - share_given, labels)
    return temperature * gradient


def _clipped_at(
    logits: Tensor, reference_logits: Tensor, teacher_logits: Tensor, labels: Tensor, temperature: float
) -> tuple[Split, Tensor, Tensor]:
    """The current prediction at the temperature; log q~ and l / T of the reference."""
    check_same_shape(logits, reference_logits, "reference_logits")
    labels = one_class("the local loss", labels, logits.shape)
    reference = reference_logits.detach()
    step = directions(reference, teacher_logits, labels, temperature=temperature)
    pair = split_pair(reference / temperature, teacher_logits / temperature, labels)
    share_given = step.compensation / temperature
    capped = torch.logaddexp(pair.student.log_conditional, share_given.log().unsqueeze(-1))
    return split(logits / temperature, labels), pair.teacher.log_conditional.minimum(capped), share_given


@dataclass(frozen=True)
class LocalOptimum:
    """The best displacement that lowers no margin, its progress, and the progress without that constraint."""

    displacement: Float[Tensor, "*batch K"]
    """To be subtracted from the logits."""
    progress: Float[Tensor, "*batch"]
    unconstrained_progress: Float[Tensor, "*batch"]


def quadratic_optimum(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    smoothness: float = 0.5,
    *,
    temperature: float = 1.0,
) -> LocalOptimum:
    """The displacement that lowers no margin and has the largest decrease that smoothness guarantees.

    Paper: eq:quadratic-optima, max Q_u(x) over the safe cone is ||d||^2 / (2 L) at d / L, over all x ||u||^2 / (2 L).
    The
    same for sets of correct classes and at every temperature: there too the conditional loss is 1/2-smooth.

    Shapes: logits `(*batch, K)`, labels `(*batch)`, or a mask or probabilities `(*batch, K)`; `displacement` `(*batch,
    K)`, both progresses `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> best = quadratic_optimum(student, teacher, torch.tensor([0]))
        >>> best.progress / best.unconstrained_progress
        tensor([0.7500])
    """
    check_positive("smoothness", smoothness)
    step = directions(student_logits, teacher_logits, weighed(labels, student_logits), temperature=temperature)
    return LocalOptimum(
        displacement=step.safe / smoothness,
        progress=step.safe.square().sum(-1) / (2 * smoothness),
        unconstrained_progress=step.conditional.square().sum(-1) / (2 * smoothness),
    )


def fixed_length_optimum(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    length: float | Float[Tensor, "*batch"],
    *,
    temperature: float = 1.0,
) -> LocalOptimum:
    """The displacement of at most this length that lowers no margin and descends the conditional loss most.

    Paper: eq:fixed-budget-optimum, max u'x over the safe cone with ||x|| <= S is S ||d|| at S d / ||d||. Where r = q no
    displacement makes progress, and the zero one is returned. The same for
    sets of correct classes and at every temperature.

    Example:
        >>> student, teacher = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> fixed_length_optimum(student, teacher, torch.tensor([0]), 2.0).progress > 0
        tensor([True])
    """
    step = directions(student_logits, teacher_logits, weighed(labels, student_logits), temperature=temperature)
    S = as_grid("length", length, step.compensation, low=0.0)
    # Scaled first: the norm of a nearly finished student's direction underflows.
    scale = step.safe.abs().amax(-1, keepdim=True)
    d, u = step.safe / scale, step.conditional / scale
    norm = torch.linalg.vector_norm(d, dim=-1, keepdim=True)
    nothing_left = scale == 0
    unconstrained = S * scale * torch.linalg.vector_norm(u, dim=-1, keepdim=True)
    return LocalOptimum(
        displacement=torch.where(nothing_left, 0.0, S * d / norm),
        progress=torch.where(nothing_left, 0.0, S * scale * norm).squeeze(-1),
        unconstrained_progress=torch.where(nothing_left, 0.0, unconstrained).squeeze(-1),
    )
