"""The protected loss: its gradient is the paper's direction, its value what is left to learn."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.compiler import is_compiling

from tpkd.geometry.correct import check_support
from tpkd.geometry.directions import check_beta, named_direction
from tpkd.geometry.divergences import conditional_loss, label_loss
from tpkd.geometry.inputs import can_read_values, check_ignore_index, check_positive, computation_dtype
from tpkd.geometry.top_k import TopK, check_top_k_batch
from tpkd.objectives.base import PaperAccuracy, TeacherAverage
from tpkd.objectives.injection import inject_direction, refuse_transforms
from tpkd.objectives.kernels import code_for, values_and_direction
from tpkd.objectives.kernels.batch import Batch, parts_of
from tpkd.objectives.reduction import check_positions, check_reduction, denominator, flat_labels, logit_rows, soft_rows
from tpkd.objectives.registry import register
from tpkd.objectives.row_objective import RowObjective
from tpkd.objectives.weights import weight_rows


def tpkd_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."] | TopK,
    labels: Shaped[Tensor, "..."],
    *,
    beta: float = 0.5,
    temperature: float = 1.0,
    sample_weights: Float[Tensor, "..."] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: float | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """Learn from labels and teacher without giving back any margin that the label step would have won.

    Paper: eq:surrogate. The gradient with respect to the student logits is the direction v = h + beta d of eq:core,
    reduced; the value is label loss + beta * conditional loss, which is never negative and zero exactly when both kinds
    of learning are complete. A class that both networks rule out, by a logit of -inf, counts as if it were not there.

    EXTENSIONS 1: labels may be probabilities, as those of mixup. Their support is the set of correct classes, and no
    margin between a class in it and one outside is worse than after the step of soft cross-entropy alone. The value is
    soft cross-entropy + beta * conditional loss, at least the entropy of the label. EXTENSIONS 3: at a temperature T
    the conditional loss is T^2 KL(q_T || r_T); the promise about margins is the same.

    Args:
        student_logits: `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 3.
        teacher_logits: the same shape; or a `TopK` of the positions, see `top_k_tpkd_loss`. No gradient flows to it.
        labels: integer classes, the same shape without K; or probabilities of the shape of the logits, nonnegative with
            sum one, of which a row of zeros is ignored. They leave at least two classes with probability zero.
        beta: weight of the conditional direction; the paper's is 1/2.
        temperature: of the conditional distributions alone; the paper's is 1.
        sample_weights: the shape of the positions: what the value and the direction of each are multiplied by. A weight
            of zero contributes exactly nothing, and `"mean"` divides by the sum of weights, as `F.cross_entropy` does
            with class weights; `tpkd.objectives.class_sample_weights` makes them of class weights.
        ignore_index: positions with this label contribute exactly nothing, whatever their logits hold.
        reduction: `"mean"` over valid positions, `"sum"`, or `"none"`.
        num_items: the count of valid positions over the whole effective batch, as denominator of `"mean"`; with it,
            gradient accumulation and data parallelism are exact under any mask. With `sample_weights`, the sum of the
            weights of valid positions.

    Returns:
        A scalar, or for `"none"` one loss per position; float32 for half-precision logits. It supports one backward
        pass: `create_graph=True`, a second backward through the same loss, forward-mode differentiation and the
        transforms of `torch.func` raise `RuntimeError`.

    Example:
        >>> import torch
        >>> student = torch.tensor([[2.0, 0.5, -1.0, 0.0]], requires_grad=True)
        >>> teacher, labels = torch.tensor([[1.0, 0.0, 0.5, -1.0]]), torch.tensor([0])
        >>> loss = tpkd_loss(student, teacher, labels)
        >>> loss.backward()
        >>> loss.detach(), student.grad
        (tensor(0.6084), tensor([[-0.3960,  0.2660, -0.0708,  0.2009]]))
        >>> tpkd_loss(student, teacher, torch.tensor([[0.7, 0.3, 0.0, 0.0]]), temperature=4.0).detach()
        tensor(1.1782)
        >>> pair = student.detach().expand(2, -1), teacher.expand(2, -1), torch.tensor([0, 1])
        >>> tpkd_loss(*pair, sample_weights=torch.tensor([3.0, 1.0]), reduction="none")
        tensor([1.8252, 2.0851])
    """
    check_beta(beta)
    check_positive("temperature", temperature)
    refuse_transforms(student_logits)
    weighted = sample_weights is not None
    check_reduction(reduction, num_items, weighted=weighted)
    z, zt, position_shape = _rows(student_logits, teacher_logits, labels, ignore_index)
    weights: Tensor | None = None
    if not (isinstance(labels, Tensor) and labels.is_floating_point()):
        y, valid = flat_labels(labels, position_shape, z.shape[1], ignore_index)
    elif labels.shape != student_logits.shape or weighted or is_compiling() or code_for(z, zt, labels) != "cpu":
        y, valid = _checked_soft_labels(student_logits, zt, labels)
    else:
        y, valid = logit_rows(labels.detach()), None  # the kernel looks at them
    if sample_weights is not None:  # zero where a row is not valid
        weights, valid = weight_rows(sample_weights, position_shape, computation_dtype(z, parts_of(zt)[0]), valid)
    count = denominator(z.shape[0], valid, num_items, weights) if reduction == "mean" else 1
    # A known weight of all rows goes straight into the gradient. Not in float16, which would lose small entries that a
    # loss scale saves: there, as with a weight for each row, the backward pass multiplies.
    is_weighted = isinstance(count, int) and reduction != "none" and z.dtype != torch.float16 and weights is None
    weight = 1 / int(count) if is_weighted else 1.0
    wanted = z.requires_grad and torch.is_grad_enabled()
    found = values_and_direction(Batch(z.detach(), zt, y, valid, float(beta), weight, wanted, float(temperature)))
    losses = found.total if is_weighted else found.losses
    if found.ignored and reduction == "mean" and num_items is None:
        # The mean was taken over all rows, because looking for rows of zeros first would cost a pass over the labels.
        assert is_weighted
        correction = count / max(1, count - found.ignored)
        losses = losses * correction
        if found.direction is not None:
            found.direction.mul_(correction)
    if found.direction is not None:
        losses = inject_direction(z, found.direction, losses)
    if weights is not None:
        losses = losses * weights  # the backward pass does the same to the directions
    if reduction == "none":
        return losses.reshape(position_shape)
    return losses if is_weighted else losses.sum() / count


def _rows(
    student: Tensor, teacher: Tensor | TopK, labels: Tensor, ignore_index: int
) -> tuple[Float[Tensor, "rows K"], Float[Tensor, "rows K"] | TopK, torch.Size]:
    """Both networks of every position as rows, and the shape of the positions."""
    if not isinstance(teacher, TopK):
        position_shape = check_positions(student, {"teacher_logits": teacher}, min_classes=3)
        return logit_rows(student), logit_rows(teacher.detach()), position_shape
    position_shape = check_positions(student, {}, min_classes=3)
    check_top_k_batch(student.movedim(min(1, len(position_shape)), -1), teacher, labels, ignore_index=ignore_index)
    return logit_rows(student), teacher.rows(), position_shape


def _checked_soft_labels(
    student: Tensor, teacher: Tensor | TopK, labels: Tensor
) -> tuple[Shaped[Tensor, "..."], Bool[Tensor, "rows"] | None]:
    """Rows of probabilities, or classes where each row gives one class all, with the same bits; and which are valid."""
    y, valid = soft_rows(labels, student.shape, computation_dtype(student, parts_of(teacher)[0]))
    check_support(y > 0)
    return y.argmax(-1) if can_read_values(y) and ((y > 0).sum(-1) == 1).all() else y, valid


class TPKDLoss(nn.Module):
    """`tpkd_loss` as a module without parameters.

    Example:
        >>> import torch
        >>> criterion = TPKDLoss()
        >>> criterion(torch.zeros(2, 3), torch.zeros(2, 3), torch.tensor([0, 1]))
        tensor(1.0986)
    """

    def __init__(
        self, beta: float = 0.5, ignore_index: int = -100, reduction: str = "mean", temperature: float = 1.0
    ) -> None:
        """Keep the settings of every call."""
        super().__init__()
        check_beta(beta)
        check_positive("temperature", temperature)
        check_reduction(reduction, None)
        self.beta, self.ignore_index, self.temperature = beta, check_ignore_index(ignore_index), temperature
        self.reduction = reduction

    def forward(
        self,
        student_logits: Tensor,
        teacher_logits: Tensor | TopK,
        labels: Tensor,
        num_items: float | Tensor | None = None,
        sample_weights: Tensor | None = None,
    ) -> Tensor:
        """The loss of one call; see `tpkd_loss`."""
        settings = self._settings()
        return tpkd_loss(
            student_logits, teacher_logits, labels, num_items=num_items, sample_weights=sample_weights, **settings
        )

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("beta", "ignore_index", "reduction", "temperature")}

    def extra_repr(self) -> str:
        """The settings, for `print(model)`."""
        return ", ".join(f"{name}={value!r}" for name, value in self._settings().items())


@dataclass
class DirectionObjective(RowObjective):
    """TPKD or a control: its gradient is `tpkd.geometry.named_direction` of its name, its value a loss to monitor.

    Paper: section 6.2.
    """

    beta: float = 0.5
    temperature: float = 1.0

    source = "Yuan & Tao, Task-Preserving Knowledge Distillation"
    min_classes = 3
    takes_soft_labels = True
    takes_top_k = True  # at every temperature: the student completes what was cut
    teacher_average: ClassVar[TeacherAverage | None] = "conditionals"  # which are all that is learned from the teacher

    @property
    def step_temperature(self) -> float:
        """Its own."""
        return self.temperature

    def check(self) -> None:
        """The coefficient is not negative."""
        check_beta(self.beta)

    def __call__(self, student_logits: Tensor, *others: Any, **tail: Any) -> Tensor:
        """The loss as a function; refuses what replaces the backward pass."""
        refuse_transforms(student_logits)
        return super().__call__(student_logits, *others, **tail)

    def row_losses(self, student: Tensor, teacher: Tensor | TopK, labels: Tensor) -> Tensor:
        """The values, with the direction as their gradient."""
        logits = student.detach()
        values = self.row_values(logits, teacher, labels)
        if not student.requires_grad:
            return values
        direction = named_direction(self.name, logits, teacher, labels, beta=self.beta, temperature=self.temperature)
        return inject_direction(student, direction, values)

    def row_values(self, student: Tensor, teacher: Tensor | TopK, labels: Tensor) -> Tensor:
        """L_CE + beta L_cond."""
        conditional = conditional_loss(student, teacher, labels, temperature=self.temperature)
        return label_loss(student, labels) + self.beta * conditional


@register
class TPKD(DirectionObjective):
    """The protected update; `settings_note` says which settings are the paper's, and which are ours."""

    name = "tpkd"
    title = "TPKD"
    summary = "label gradient kept whole, plus half the nearest safe conditional direction"
    settings_note = "paper: beta=0.5, temperature=1.0; ours: beta=1.0, temperature=4.0, compared in docs/evidence.md"
    ablation = ("TPKD", "h + d/2")
    paper_accuracy = PaperAccuracy(vision=(88.05, 0.12), text=(93.81, 0.27))

    def __call__(self, student_logits: Tensor, *others: Any, **tail: Any) -> Tensor:
        """`tpkd_loss`: the same rows, many times faster."""
        return tpkd_loss(student_logits, *others, beta=self.beta, temperature=self.temperature, **tail)
