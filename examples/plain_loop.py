"""A teacher in a plain PyTorch loop: one line for the loss, one for the monitor."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from tpkd import tpkd_loss
from tpkd.theory import observe


def network(hidden: int) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def train(model: nn.Module, size: int, teacher: nn.Module | None = None) -> nn.Module:
    """Learn the first so many images, from labels or from a teacher too."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(1, 241):
        rows = torch.randint(size, (50,))
        logits = model(images[rows])
        if teacher is None:
            loss = nn.functional.cross_entropy(logits, labels[rows])
        else:
            with torch.no_grad():
                teacher_logits = teacher(images[rows])
            loss = tpkd_loss(logits, teacher_logits, labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if teacher is not None and step % 60 == 0:
            seen = observe(logits, teacher_logits, labels[rows])
            print(f"step {step}: loss {loss:.3f}", *(f"{name} {seen[name]:.3f}" for name in WATCHED), sep=", ")
    return model.eval()


WATCHED = ("blocked_share", "conditional_loss", "compensation", "retention")
torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)

teacher = train(network(hidden=256), size=1000)
student = train(network(hidden=32), size=200, teacher=teacher)
print(f"accuracy {(student(images[1000:]).argmax(-1) == labels[1000:]).float().mean():.3f}")
