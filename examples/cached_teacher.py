"""A teacher that is asked once per sample: its logits in a cache, the student's epochs without it."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from tpkd import tpkd_loss
from tpkd.models.weights import weights_fingerprint
from tpkd.teacher.cache import CacheRecipe, CacheRows, build_cache, open_cache


def network(hidden: int) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)

teacher = network(hidden=256)
optimizer = torch.optim.AdamW(teacher.parameters(), lr=1e-2)
for _ in range(240):
    rows = torch.randint(1000, (50,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(teacher(images[rows]), labels[rows]).backward()
    optimizer.step()

# The recipe says what decides the rows: a cache of another teacher, data or preprocessing is refused, never mixed.
recipe = CacheRecipe(weights_fingerprint(teacher), "digits", {"scale": 1 / 16}, class_map=None, num_classes=10)
rows = CacheRows(range(200), [0] * 200, lambda start, stop: images[start:stop])
build_cache("teacher-cache", rows, lambda batch: {"logits": teacher.eval()(batch)}, recipe)
del teacher

cache = open_cache("teacher-cache", expected=recipe)
student = network(hidden=32)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
for _ in range(60):
    for ids in torch.randperm(200).split(50):
        loss = tpkd_loss(student(images[ids]), cache.read(ids), labels[ids])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"{len(cache)} rows were computed once and read 60 times")
print(f"accuracy {(student(images[1000:]).argmax(-1) == labels[1000:]).float().mean():.3f}")
