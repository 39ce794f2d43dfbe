"""Mixup in a plain PyTorch loop: images and labels are mixed in one line each, and the loss takes soft labels."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.distributions import Beta
from torch.nn import functional
from tpkd import tpkd_loss


def network(hidden: int) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def train(model: nn.Module, size: int, teacher: nn.Module | None = None) -> nn.Module:
    """Learn mixtures of the first so many images, from labels or from a teacher too."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(1, 241):
        rows, partners = torch.randint(size, (2, 50))
        weight = Beta(0.4, 0.4).sample()
        mixed = weight * images[rows] + (1 - weight) * images[partners]
        soft_labels = weight * one_hot[rows] + (1 - weight) * one_hot[partners]
        logits = model(mixed)
        if teacher is None:
            loss = functional.cross_entropy(logits, soft_labels)
        else:
            with torch.no_grad():
                teacher_logits = teacher(mixed)  # the teacher sees the mixed image too
            loss = tpkd_loss(logits, teacher_logits, soft_labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if teacher is not None and step % 60 == 0:
            print(f"step {step}: loss {loss:.3f}, weight {weight:.3f}")
    return model.eval()


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)
one_hot = functional.one_hot(labels, 10).float()

teacher = train(network(hidden=256), size=1000)
student = train(network(hidden=32), size=200, teacher=teacher)
print(f"accuracy {(student(images[1000:]).argmax(-1) == labels[1000:]).float().mean():.3f}")
