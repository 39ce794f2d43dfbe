"""Make the data and teachers of configs/evidence-features-*.yaml: `python tools/evidence_features.py clinc150|hwu64`.

Every text becomes the masked mean of paraphrase-MiniLM-L3's last layer, standardised by the training part as published.
A class gives 40 of its training texts, at most half of them, to the pool from which students draw. Teacher A is a
probe of all other training texts; teacher C is one of all training texts, with smoothed labels. Files go to
runs/evidence-features/NAME: pool.npz, validation.npz, test.npz, teacher-a.safetensors and teacher-c.safetensors.

Embeddings are rounded differently by other processors and libraries, so the files are not the same bytes everywhere.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn import functional

from tpkd.config.loading import expand_data
from tpkd.data import load_dataset
from tpkd.data.batches import PlainBatches, Preparation, load_batches
from tpkd.data.dataset import Dataset
from tpkd.data.order import HELD_OUT, hash_words
from tpkd.data.views import IDENTITY_VIEW
from tpkd.files import publish
from tpkd.models.classifier import extract_features
from tpkd.models.mlp import MLP
from tpkd.models.options import MLPOptions
from tpkd.models.registry import build_model, encoder_for
from tpkd.models.spec import ModelSpec
from tpkd.models.weights import save_weights

PLACE = Path("runs/evidence-features")
ENCODER = "hf:$TPKD_DATA/weights/paraphrase-minilm-l3"
POOL = 40
POOL_SEED = 0
PENALTIES = {"a": 0.03, "c": 0.1}
"""Inverse strength of the penalty of each teacher; configs/evidence-features-clinc-a.yaml says how they were fixed."""
SMOOTHING = 0.1
_MAX_LENGTH = 64
_SPLITS = {"train": "train.csv", "validation": "valid.csv", "test": "test.csv"}


def load_texts(name: str, split: str) -> Dataset:
    """A part of CLINC150 or HWU64 exactly as published; out-of-scope questions are left out."""
    if name == "hwu64":
        return load_dataset(expand_data("csv:$TPKD_DATA/hwu64"), split, splits=_SPLITS)
    published = json.loads(Path(expand_data("$TPKD_DATA/clinc150/data_full.json")).read_text(encoding="utf-8"))
    class_names = tuple(sorted({intent for _, intent in published["train"]}))
    rows = published["val" if split == "validation" else split]
    labels = np.array([class_names.index(intent) for _, intent in rows], np.int64)
    texts = tuple(text for text, _ in rows)
    return Dataset("clinc150", split, "text", texts, labels, np.arange(len(rows)), class_names)


def embed(dataset: Dataset) -> NDArray[np.float32]:
    """The masked mean of the encoder's last layer for every text."""
    name, options = expand_data(ENCODER), {"pooling": "mean"}
    model = build_model(ModelSpec(name, dataset.num_classes, options, head="random")).eval()
    encode = encoder_for(name, options=options, max_length=_MAX_LENGTH, padding="longest")
    order = np.argsort([len(text) for text in dataset.inputs], kind="stable")  # short texts go without padding
    batches = PlainBatches(dataset.subset(order), Preparation(IDENTITY_VIEW, encode), batch_size=64)
    features = np.empty((len(dataset), model.feature_size), np.float32)
    features[order] = extract_features(model, (batch.inputs for batch in load_batches(batches))).numpy()
    return features


def embedded(dataset: Dataset, path: Path) -> NDArray[np.float32]:
    """The embeddings of a part, from an earlier call if there was one."""
    if not path.exists():
        with publish(path) as file:
            np.save(file, embed(dataset))
    found: NDArray[np.float32] = np.load(path, allow_pickle=False)
    return found


def draw_pool(labels: NDArray[np.int64], count: int = POOL, seed: int = POOL_SEED) -> NDArray[np.bool_]:
    """Which samples students may draw from: `count` of each class, at most half of it, and at least one.

    Example:
        >>> draw_pool(np.array([0] * 100 + [1] * 7)).nonzero()[0].size  # 40 of the first class, 3 of the second
        43
    """
    hashes = hash_words(HELD_OUT, seed, np.arange(len(labels)))
    chosen = np.zeros(len(labels), np.bool_)
    for label in np.unique(labels):
        positions = np.flatnonzero(labels == label)
        chosen[positions[np.argsort(hashes[positions])][: max(1, min(count, len(positions) // 2))]] = True
    return chosen


def smoothed_probe(features: Tensor, labels: Tensor, num_classes: int, *, C: float, smoothing: float) -> nn.Linear:
    """A logistic regression with label smoothing: the minimum of C sum_i CE_i + |W|^2 / 2, in float64.

    Example:
        >>> x, y = torch.eye(3), torch.arange(3)
        >>> smoothed_probe(x, y, 3, C=1.0, smoothing=0.1)(x).argmax(-1)
        tensor([0, 1, 2])
    """
    x, size = features.double(), features.shape[1]
    scale = 1 / (C * len(x))

    def value_and_gradient(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        parameters = torch.from_numpy(flat).view(num_classes, size + 1).requires_grad_()
        weight, bias = parameters[:, :size], parameters[:, size]
        loss = functional.cross_entropy(functional.linear(x, weight, bias), labels, label_smoothing=smoothing)
        (gradient,) = torch.autograd.grad(total := loss + scale * weight.square().sum() / 2, parameters)
        return total.item(), gradient.numpy().ravel()

    options = {"maxiter": 300, "gtol": 1e-6, "ftol": 1e-10}
    start = np.zeros(num_classes * (size + 1))
    found = torch.from_numpy(minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options).x)
    found = found.view(num_classes, size + 1).float()
    linear = nn.Linear(size, num_classes)
    linear.weight, linear.bias = nn.Parameter(found[:, :size].contiguous()), nn.Parameter(found[:, size].contiguous())
    return linear


def _save_part(path: Path, dataset: Dataset, features: NDArray[np.float32], kept: NDArray[np.bool_]) -> None:
    ids = np.array([f"{dataset.split}-{position}" for position in np.flatnonzero(kept)])
    names = np.array(dataset.class_names)
    with publish(path) as file:
        np.savez(file, features=features[kept], labels=dataset.labels[kept], ids=ids, class_names=names)


def _save_teacher(path: Path, dataset: Dataset, linear: nn.Linear) -> None:
    teacher = MLP(dataset.num_classes, MLPOptions(input_size=linear.in_features, hidden=()))
    teacher.replace_classifier(linear)
    save_weights(teacher, path, dataset.class_names)


def make(name: str, place: Path = PLACE) -> None:
    """Write the files of one data set."""
    directory = place / name
    directory.mkdir(parents=True, exist_ok=True)
    train = load_texts(name, "train")
    raw = embedded(train, directory / "train-embeddings.npy")
    mean, deviation = raw.mean(0), raw.std(0)
    features, pool = (raw - mean) / deviation, draw_pool(train.labels)
    _save_part(directory / "pool.npz", train, features, pool)
    for split in ("validation", "test"):
        part = load_texts(name, split)
        raw = embedded(part, directory / f"{split}-embeddings.npy")
        _save_part(directory / f"{split}.npz", part, (raw - mean) / deviation, np.ones(len(part), np.bool_))
    for letter, kept, smoothing in (("a", ~pool, 0.0), ("c", np.ones(len(train), np.bool_), SMOOTHING)):
        x, y = torch.from_numpy(features[kept]), torch.from_numpy(train.labels[kept])
        teacher = smoothed_probe(x, y, train.num_classes, C=PENALTIES[letter], smoothing=smoothing)
        _save_teacher(directory / f"teacher-{letter}.safetensors", train, teacher)
    print(f"{directory}: {pool.sum()} texts in the pool, {(~pool).sum()} for teacher A, {len(train)} for teacher C")


if __name__ == "__main__":
    if sys.argv[1:] not in (["clinc150"], ["hwu64"]):
        sys.exit("usage: python tools/evidence_features.py clinc150|hwu64")
    make(sys.argv[1])
