"""The loss on your GPU: `python -m benchmarks.gpu [--out FILE]` checks it, times it and writes a report to send.

Correctness comes first: if any number is off, nothing is timed. Times are ratios within one run, in turns. Without a
GPU the same code runs in Triton's interpreter (`TRITON_INTERPRET=1`), on small batches, and its times mean nothing.
"""

import argparse
import functools
import importlib.util
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from benchmarks.timing import interleaved_seconds
from torch import Tensor
from torch.nn import functional

from tpkd.geometry import conditional_loss, directions, label_loss
from tpkd.objectives import tpkd_loss
from tpkd.objectives.kernels import code_for, gpu

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
CHECKED = (3, 100, 1000, 16384, 16385, 32768, 151936)
TIMED = ((256, 100), (256, 1000), (1024, 21841), (2048, 32768), (1024, 151936))
DTYPES = {torch.float32: 5e-5, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
"""How far the largest entry of a row may be off: sums of 1e5 numbers, or one rounding of the result."""
FEW_CLASSES, EXACT_OF_FEW = 1000, 2e-6


def cross_entropy(z: Tensor, zt: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(z, y)


def kd(z: Tensor, zt: Tensor, y: Tensor, temperature: float = 4.0) -> Tensor:
    """Ordinary distillation as people write it."""
    student, teacher = (functional.log_softmax(logits / temperature, -1) for logits in (z, zt))
    imitation = functional.kl_div(student, teacher, reduction="batchmean", log_target=True)
    return functional.cross_entropy(z, y) + temperature**2 * imitation


def liger_kd() -> Loss:
    """The same of Liger's kernels. UNTRIED: Liger needs a GPU, and there was none to write this on."""
    from liger_kernel.transformers import LigerCrossEntropyLoss, LigerKLDIVLoss

    hard, soft = LigerCrossEntropyLoss(), LigerKLDIVLoss(reduction="batchmean", log_target=True)

    def loss(z: Tensor, zt: Tensor, y: Tensor, temperature: float = 4.0) -> Tensor:
        student, teacher = (functional.log_softmax(logits / temperature, -1) for logits in (z, zt))
        return hard(z, y) + temperature**2 * soft(student, teacher)

    return loss


def make(rows: int, num_classes: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Student with a gradient, teacher, labels: of three scales, the same in every run."""
    generator = torch.Generator().manual_seed(num_classes)
    scales = torch.tensor([0.01, 1.0, 5.0])[torch.arange(rows) % 3].unsqueeze(-1)
    student, teacher = ((torch.randn(rows, num_classes, generator=generator) * scales).to(dtype) for _ in range(2))
    labels = torch.randint(num_classes, (rows,), generator=generator)
    return student.to(device).requires_grad_(), teacher.to(device), labels.to(device)


def errors(num_classes: int, dtype: torch.dtype, temperature: float, device: torch.device) -> tuple[float, float]:
    """Largest error of a gradient entry, relative to its row's largest, and of a loss, relative or in nats."""
    student, teacher, labels = make(3, num_classes, dtype, device)
    losses = tpkd_loss(student, teacher, labels, temperature=temperature, reduction="none")
    losses.sum().backward()
    z, zt, y = student.detach().cpu().double(), teacher.cpu().double(), labels.cpu()
    expected = label_loss(z, y) + 0.5 * conditional_loss(z, zt, y, temperature=temperature)
    direction = directions(z, zt, y, temperature=temperature).update
    assert student.grad is not None
    off = (student.grad.cpu().double() - direction).abs().amax(-1) / direction.abs().amax(-1)
    wrong = (losses.detach().cpu().double() - expected).abs() / expected.clamp(min=1)
    return float(off.max()), float(wrong.max())


def check(device: torch.device, counts: tuple[int, ...]) -> tuple[list[str], bool]:
    """Lines of a table, and whether every number is as near to the float64 reference as it is said to be."""
    lines, good = ["| classes | dtype | T | gradient | loss | |", "|---|---|---|---|---|---|"], True
    for num_classes in counts:
        for dtype, most in DTYPES.items():
            allowed = EXACT_OF_FEW if dtype == torch.float32 and num_classes <= FEW_CLASSES else most
            for temperature in (1.0, 4.0):
                found, loss = errors(num_classes, dtype, temperature, device)
                fine = found <= allowed and loss <= 1e-5
                good &= fine
                name, verdict = str(dtype).removeprefix("torch."), "right" if fine else "WRONG"
                lines.append(f"| {num_classes} | {name} | {temperature:g} | {found:.1e} | {loss:.1e} | {verdict} |")
    return lines, good


def losses(backend: str) -> dict[str, Loss]:
    """What is timed, KD first; Liger's where it is installed."""
    found: dict[str, Loss] = {"KD": kd, "TPKD": tpkd_loss, "CE": cross_entropy}
    found["TPKD, T = 4"] = functools.partial(tpkd_loss, temperature=4.0)
    found["KD, compiled"] = torch.compile(kd, dynamic=False, backend=backend)
    found["TPKD, compiled"] = torch.compile(tpkd_loss, dynamic=False, backend=backend)
    if importlib.util.find_spec("liger_kernel") is not None:
        found["KD of Liger"] = liger_kd()
    return found


def times(shapes: tuple[tuple[int, int], ...], device: torch.device, seconds: float) -> list[str]:
    """Lines of a table: time of a forward and a backward pass, over that of KD."""
    torch.compiler.reset()
    named = losses("inductor" if device.type == "cuda" else "aot_eager")
    lines = ["| rows × classes | dtype | " + " | ".join(named) + " |", "|---" * (len(named) + 2) + "|"]
    for rows, num_classes in shapes:
        for dtype in (torch.float32, torch.bfloat16):
            inputs = make(rows, num_classes, dtype, device)

            def call(loss: Loss, inputs: tuple[Tensor, Tensor, Tensor] = inputs) -> None:
                inputs[0].grad = None
                loss(*inputs).backward()
                if device.type == "cuda":
                    torch.cuda.synchronize(device)

            calls = {name: functools.partial(call, loss) for name, loss in named.items()}
            taken = interleaved_seconds(calls, seconds=seconds, least=2 if device.type == "cpu" else 20)
            ratios = " | ".join(f"{taken[name] / taken['KD']:.2f}" for name in named)
            lines.append(f"| {rows} × {num_classes} | {str(dtype).removeprefix('torch.')} | {ratios} |")
    return lines


def report(device: torch.device, *, quick: bool, seconds: float) -> tuple[str, bool]:
    """The whole report, and whether all numbers are right."""
    batch = make(2, 10, torch.float32, device)
    code = code_for(*(tensor.detach() for tensor in batch))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "Triton's interpreter: times mean nothing"
    triton = importlib.util.find_spec("triton")
    version = importlib.import_module("triton").__version__ if triton else "none"
    where = f"{name}; torch {torch.__version__}, Triton {version}, Python {platform.python_version()}, code: {code}"
    checked, good = check(device, CHECKED[:3] + CHECKED[4:5] if quick else CHECKED)
    lines = ["# TPKD on a GPU", "", where, "", "## Against the float64 reference", "", *checked]
    if good:
        shapes = ((2, 10),) if quick else TIMED
        lines += ["", "## Time over that of KD", "", *times(shapes, device, seconds)]
    else:
        lines += ["", "Nothing was timed, because numbers are wrong."]
    return "\n".join(lines) + "\n", good


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-report.md"))
    parser.add_argument("--quick", action="store_true", help="a few small batches, to see that it runs")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each shape and dtype")
    chosen = parser.parse_args(arguments)
    if not torch.cuda.is_available() and not gpu.is_interpreted():
        print("torch finds no NVIDIA or AMD GPU; TRITON_INTERPRET=1 runs the same code on a CPU, slowly")
        return 2
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    text, good = report(device, quick=chosen.quick or device.type == "cpu", seconds=chosen.seconds)
    chosen.out.write_text(text)
    print(text + f"\nwrote {chosen.out}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
