"""The losses that are measured against each other, and the logits they are measured on."""

from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

import torch
import torch.nn.functional as F  # noqa: N812 (as people write it)
from entmax import sparsemax
from torch import Tensor

from tpkd.geometry import conditional_loss, label_loss, named_direction
from tpkd.objectives import tpkd_loss
from tpkd.objectives.injection import inject_direction
from tpkd.objectives.kernels import cpu

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]

SHAPES = ((64, 100), (64, 150), (256, 1000), (64, 21841), (16, 151936))
SCALES = {"random": 1.0, "peaked": 5.0, "flat": 0.01}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    """Logits of one shape, kind and dtype."""

    rows: int
    num_classes: int
    kind: str
    dtype: str

    def make(self) -> tuple[Tensor, Tensor, Tensor]:
        """Student with a gradient, teacher, labels; the same in every run."""
        generator = torch.Generator().manual_seed(self.num_classes)
        shape, scale = (self.rows, self.num_classes), SCALES[self.kind]
        student = (torch.randn(shape, generator=generator) * scale).to(DTYPES[self.dtype]).requires_grad_()
        teacher = (torch.randn(shape, generator=generator) * scale).to(DTYPES[self.dtype])
        return student, teacher, torch.randint(self.num_classes, (self.rows,), generator=generator)


def cross_entropy(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(student, labels)


def plain_kd(z: Tensor, zt: Tensor, y: Tensor) -> Tensor:
    """Ordinary distillation as people write it."""
    T = 4.0
    return F.cross_entropy(z, y) + T * T * F.kl_div(
        F.log_softmax(z / T, -1), F.log_softmax(zt / T, -1), reduction="batchmean", log_target=True
    )


def tpkd_as_tensor_code(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """What accelerators do, and a CPU for which no kernel was built."""
    with patch.object(cpu, "_kernel", None):
        return tpkd_loss(student, teacher, labels)


def sorted_reference(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """TPKD by the geometry: every formula on its own, the threshold by a sort."""
    z = student.detach()
    values = label_loss(z, labels) + 0.5 * conditional_loss(z, teacher, labels)
    direction = named_direction("tpkd", z, teacher, labels).to(student.dtype)
    return inject_direction(student, direction, values).mean()


def sparsemax_of_difference(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """The nearest public projection on logits of the same size, with a gradient that is not zero."""
    return (sparsemax(student, dim=-1) * teacher).sum()


EAGER: dict[str, Loss] = {"CE": cross_entropy, "KD": plain_kd, "TPKD": tpkd_loss}
SLOW: dict[str, Loss] = {
    "TPKD as tensor code": tpkd_as_tensor_code,
    "TPKD by sort": sorted_reference,
    "sparsemax": sparsemax_of_difference,
}
COMPILED: dict[str, Loss] = {"KD": plain_kd, "TPKD": tpkd_loss}


def training_call(loss: Loss, inputs: tuple[Tensor, Tensor, Tensor]) -> Callable[[], None]:
    """One forward and backward pass that leaves a fresh gradient on the student."""
    student = inputs[0]

    def call() -> None:
        student.grad = None
        loss(*inputs).backward()

    return call


def gradient_error(case: Case) -> float:
    """Largest error of an entry of TPKD's gradient against the float64 reference, relative to its row's largest."""
    student, teacher, labels = case.make()
    tpkd_loss(student, teacher, labels, reduction="sum").backward()
    exact = named_direction("tpkd", student.detach().double(), teacher.double(), labels)
    assert student.grad is not None
    return float(((student.grad.double() - exact).abs().amax(-1) / exact.abs().amax(-1)).max())
