"""What the loss adds to a training step of a small student, teacher logits at hand."""

from collections.abc import Callable

import torch
from benchmarks.losses import EAGER, Loss
from benchmarks.timing import interleaved_seconds, paired_ratio
from torch import Tensor, nn

from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec


class BertMini(nn.Module):
    """An encoder of BERT-Mini's size: 4 layers, width 256, 4 heads, vocabulary 30,522."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30522, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(256, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens))[:, 0])


def students() -> dict[str, tuple[nn.Module, Tensor, int]]:
    """Name to network, a batch of 64 inputs, and number of classes."""
    return {
        "BERT-Mini, 64 × 32 tokens, K = 150": (BertMini(150), torch.randint(30522, (64, 32)), 150),
        "ResNet-20, 64 × 32 × 32 pixels, K = 100": (
            build_model(ModelSpec("builtin:resnet20", num_classes=100)),
            torch.randn(64, 3, 32, 32),
            100,
        ),
    }


def step_call(model: nn.Module, inputs: Tensor, num_classes: int, loss: Loss) -> Callable[[], None]:
    teacher, labels = torch.randn(len(inputs), num_classes) * 3, torch.randint(num_classes, (len(inputs),))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def call() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model(inputs), teacher, labels).backward()
        optimizer.step()

    return call


def measure_steps(seconds: float) -> dict[str, dict[str, float]]:
    """Seconds of a step with every loss, its ratio to one with CE, and seconds of the losses alone on such logits."""
    results = {}
    for name, (model, inputs, num_classes) in students().items():
        model.train()
        steps = {loss: step_call(model, inputs, num_classes, EAGER[loss]) for loss in EAGER}
        logits = torch.randn(len(inputs), num_classes, requires_grad=True)
        teacher, labels = torch.randn(len(inputs), num_classes), torch.randint(num_classes, (len(inputs),))

        def alone(loss: Loss, logits: Tensor = logits, teacher: Tensor = teacher, labels: Tensor = labels) -> None:
            logits.grad = None
            loss(logits, teacher, labels).backward()

        losses = {f"{loss} alone": lambda loss=loss: alone(EAGER[loss]) for loss in EAGER}
        results[name] = interleaved_seconds(steps, seconds=5 * seconds) | interleaved_seconds(losses, seconds=seconds)
        # The loss is a thousandth of a step, which itself varies by some hundredths: pairs, and many of them.
        for loss in ("KD", "TPKD"):
            ratio = paired_ratio(steps[loss], steps["CE"], pairs=max(5, round(25 * seconds)))
            results[name][f"{loss} / CE"] = ratio
    return results
