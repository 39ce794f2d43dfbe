"""The controls of the paper's ablation: TPKD with one part left out or replaced."""

from torch import Tensor

from tpkd.geometry.divergences import conditional_loss, imitation_loss, label_loss
from tpkd.geometry.top_k import TopK
from tpkd.objectives.base import PaperAccuracy
from tpkd.objectives.registry import register
from tpkd.objectives.tpkd import DirectionObjective


@register
class TPKDWithoutCE(DirectionObjective):
    """Control: conditional learning alone."""

    name = "tpkd-no-ce"
    title = "TPKD without CE gradient"
    summary = "control: the safe conditional direction without the label gradient"
    control = True
    ablation = ("Without CE gradient", "d/2")
    paper_accuracy = PaperAccuracy(vision=(85.33, 0.05), text=(91.60, 0.07))

    def row_values(self, student: Tensor, teacher: Tensor | TopK, labels: Tensor) -> Tensor:
        """beta L_cond."""
        return self.beta * conditional_loss(student, teacher, labels, temperature=self.temperature)


@register
class SafeFullKL(DirectionObjective):
    """Control: the right protection around the wrong teacher signal."""

    name = "safe-full-kl"
    title = "Safe full-KL"
    summary = "control: label gradient plus the projected full-imitation gradient"
    control = True
    ablation = ("Safe full-KL", "h + Π(p − t)/2")
    teacher_average = "probabilities"
    takes_top_k = False  # the full-imitation gradient needs every class
    paper_accuracy = PaperAccuracy(vision=(87.21, 0.04), text=(93.33, 0.29))

    def row_values(self, student: Tensor, teacher: Tensor | TopK, labels: Tensor) -> Tensor:
        """L_CE + beta L_T."""
        assert isinstance(teacher, Tensor)
        imitation = imitation_loss(student, teacher, labels, temperature=self.temperature)
        return label_loss(student, labels) + self.beta * imitation


@register
class TPKDWithoutProjection(DirectionObjective):
    """Control: the right teacher signal without protection."""

    name = "tpkd-no-projection"
    title = "TPKD without projection"
    summary = "control: label gradient plus the unprotected conditional gradient"
    control = True
    ablation = ("Without projection", "h + u/2")
    paper_accuracy = PaperAccuracy(vision=(87.83, 0.03), text=(93.83, 0.23))


@register
class CompensationOnly(DirectionObjective):
    """Control: the extra confidence of TPKD without its conditional learning."""

    name = "compensation-only"
    title = "Compensation only"
    summary = "control: label gradient plus TPKD's push on the correct class alone"
    control = True
    ablation = ("Compensation only (ours)", "h + ℓa₀/2")  # a row that the paper's table does not have

    def row_values(self, student: Tensor, teacher: Tensor | TopK, labels: Tensor) -> Tensor:
        """L_CE."""
        return label_loss(student, labels)
