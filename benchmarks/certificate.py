"""What a certificate costs, in backward passes of the same network and batch; `python -m benchmarks.certificate`."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tpkd.parameter_space import certify

MOST = 8.0
"""A certificate may cost at most the time of this many backward passes."""


def convolutional(num_classes: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(128, num_classes)),
    )


def perceptron(num_classes: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(3072, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, num_classes))
    )


def elapsed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def backward_time(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """One backward pass alone; its forward pass is not counted."""
    model.eval()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    return elapsed(loss.backward)


def certificate_ratio(
    model: nn.Module,
    inputs: Tensor,
    teacher: Tensor,
    labels: Tensor,
    *,
    microbatch: int | None = None,
    repeats: int = 7,
) -> float:
    """Median time of `certify` over that of a backward pass, taken in turns so that both see the same machine."""
    backward, certificate = [], []
    for _ in range(repeats + 1):
        backward.append(backward_time(model, inputs, labels))
        certificate.append(elapsed(lambda: certify(model, inputs, teacher, labels, microbatch=microbatch)))
    return statistics.median(certificate[1:]) / statistics.median(backward[1:])  # the first round warms up


def rows(num_examples: int = 64, num_classes: int = 100) -> list[tuple[str, float, float]]:
    """(what, ratio, most) for each network and micro-batch."""
    torch.manual_seed(0)
    inputs = torch.randn(num_examples, 3, 32, 32)
    teacher, labels = 3 * torch.randn(num_examples, num_classes), torch.randint(num_classes, (num_examples,))
    measured = []
    for name, build, microbatch in (
        ("convolutional network", convolutional, None),
        ("convolutional network", convolutional, 32),
        ("perceptron", perceptron, None),
    ):
        ratio = certificate_ratio(build(num_classes), inputs, teacher, labels, microbatch=microbatch)
        what = f"certificate of a {name}, {num_examples} examples, micro-batch {microbatch or num_examples}"
        measured.append((what, ratio, MOST))
    return measured


def main() -> None:
    print("| what | backward passes | at most |\n|---|---|---|")
    for what, ratio, most in rows():
        print(f"| {what} | {ratio:.2f} | {most:g} |")


if __name__ == "__main__":
    main()
