"""Digits in Lightning from 200 labels; distill_lightning.py adds a teacher that has seen more of them."""

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tpkd.integrations.lightning import DistillationModule


class Classifier(DistillationModule):
    """One hidden layer."""

    def __init__(self, hidden: int) -> None:
        """Choose its width."""
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Logits of the ten digits."""
        return self.net(inputs)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """The loss of a batch."""
        inputs, labels = batch
        loss = self.distillation_loss(self(inputs), labels, inputs=inputs)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """How to learn."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def fit(model: Classifier, size: int) -> Classifier:
    """Train on the first so many images."""
    trainer = lightning.Trainer(max_steps=240, accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.fit(model, DataLoader(TensorDataset(images[:size], labels[:size]), batch_size=50, shuffle=True))
    return model.eval()


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)

teacher = fit(Classifier(hidden=256).distill_from(None, "ce"), size=1000)
model = fit(Classifier(hidden=32).distill_from(teacher, "tpkd"), size=200)
print(f"accuracy {(model(images[1000:]).argmax(-1) == labels[1000:]).float().mean():.3f}")
