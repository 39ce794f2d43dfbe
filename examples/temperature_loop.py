"""A temperature in a plain PyTorch loop: the teacher's small probabilities count more; margins stay protected."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from tpkd import directions, tpkd_loss


def network(hidden: int) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def train(model: nn.Module, size: int, teacher: nn.Module | None = None, **settings: float) -> nn.Module:
    """Learn the first so many images, from labels or from a teacher too."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(240):
        rows = torch.randint(size, (50,))
        logits = model(images[rows])
        if teacher is None:
            loss = functional.cross_entropy(logits, labels[rows])
        else:
            with torch.no_grad():
                teacher_logits = teacher(images[rows])
            loss = tpkd_loss(logits, teacher_logits, labels[rows], **settings)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)
teacher = train(network(hidden=256), size=1000)

start = network(hidden=32).state_dict()
for settings in ({"beta": 0.5, "temperature": 1.0}, {"beta": 1.0, "temperature": 4.0}):
    student = network(hidden=32)
    student.load_state_dict(start)
    train(student, 200, teacher, **settings)
    with torch.no_grad():
        logits, teacher_logits = student(images[1000:]), teacher(images[1000:])
    extra = directions(
        logits, teacher_logits, labels[1000:], **settings
    ).safe  # what the teacher adds to the label step
    at_label = extra.gather(-1, labels[1000:, None])
    print(f"{settings}: {(extra < at_label).sum()} margins below the label step's")
    print(f"accuracy {(logits.argmax(-1) == labels[1000:]).float().mean():.3f}")
