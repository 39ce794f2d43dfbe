"""A teacher of which a cache keeps only the largest classes, as for a vocabulary of which all would be too many."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from tpkd import top_k_tpkd_loss
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

# Of each row are kept: the three largest classes, the label's log-probability, and the total of all others.
recipe = CacheRecipe(weights_fingerprint(teacher), "digits", {"scale": 1 / 16}, None, num_classes=10, top_k=3)
rows = CacheRows(range(200), [0] * 200, lambda start, stop: images[start:stop], labels[:200])
build_cache("truncated-cache", rows, lambda batch: {"logits": teacher.eval()(batch)}, recipe)
del teacher

cache = open_cache("truncated-cache", expected=recipe)
student = network(hidden=32)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
for _ in range(60):
    for ids in torch.randperm(200).split(50):
        kept = cache.read(ids)
        loss = top_k_tpkd_loss(
            student(images[ids]),
            kept.log_probs,
            kept.indices,
            labels[ids],
            label_log_probs=kept.label_log_probs,
            rest_log_probs=kept.rest_log_probs,
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"{len(cache)} rows keep {cache.top_k} of {recipe.num_classes} classes")
print(f"accuracy {(student(images[1000:]).argmax(-1) == labels[1000:]).float().mean():.3f}")
