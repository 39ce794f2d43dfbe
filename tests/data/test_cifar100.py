"""CIFAR-100 from its pickles or one archive, and what is refused."""

import pickle

import numpy as np
import pytest

from tpkd.data.loading import load_dataset
from tpkd.errors import InputError


def cifar(tmp_path, *, text_keys, **changes):
    random = np.random.default_rng(0)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir(exist_ok=True)
    content = {}
    for split, count in (("train", 6), ("test", 4)):
        pixels = random.integers(0, 256, (count, 3072), dtype=np.uint8)
        content[split] = {"data": pixels, "fine_labels": [2, 0, 1, 2, 0, 1][:count], **changes}
        keyed = content[split] if text_keys else {key.encode(): value for key, value in content[split].items()}
        (folder / split).write_bytes(pickle.dumps(keyed, protocol=2))
    names = ["apple", "bear", "cup"]
    meta = {"fine_label_names": names} if text_keys else {b"fine_label_names": [name.encode() for name in names]}
    (folder / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    return content


@pytest.mark.parametrize("text_keys", [True, False])
def test_cifar100_reads_planes_of_colour(tmp_path, text_keys):
    content = cifar(tmp_path, text_keys=text_keys)
    train, test = (load_dataset("cifar100", split, root=tmp_path) for split in ("train", "test"))
    assert train.class_names == ("apple", "bear", "cup")
    assert train.labels.tolist() == [2, 0, 1, 2, 0, 1]
    assert (train.ids.tolist(), test.ids.tolist()) == ([*range(6)], [50_000, 50_001, 50_002, 50_003])
    for row, column, channel in ((0, 0, 0), (3, 17, 1), (31, 31, 2)):
        plane = content["train"]["data"][:, channel * 1024 + row * 32 + column]
        assert np.array_equal(train.inputs[:, row, column, channel], plane)


def test_cifar100_from_npz_is_the_same_data(tmp_path):
    cifar(tmp_path, text_keys=True)
    parts = {split: load_dataset("cifar100", split, root=tmp_path) for split in ("train", "test")}
    arrays = {f"{split}_images": data.inputs for split, data in parts.items()}
    arrays |= {f"{split}_labels": data.labels for split, data in parts.items()}
    other = tmp_path / "other"
    other.mkdir()
    np.savez(other / "cifar100.npz", class_names=np.array(parts["train"].class_names), **arrays)
    for split, data in parts.items():
        assert load_dataset("cifar100", split, root=other).fingerprint == data.fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": np.zeros((6, 3071), np.uint8)}, r"train: data: expected uint8 \(n, 3072\), found uint8 \(6, 3071\)"),
        ({"data": np.zeros((6, 3072))}, r"train: data: expected uint8 \(n, 3072\), found float64"),
        ({"fine_labels": ["a"]}, "train: labels: expected a list of integers, found list"),
        ({"fine_labels": [0, 1, 2, 3, 0, 0]}, "expected labels from 0 to 2, found 3 in row 3"),
    ],
)
def test_damaged_cifar100_is_refused(tmp_path, changes, message):
    cifar(tmp_path, text_keys=True, **changes)
    with pytest.raises(InputError, match=message):
        load_dataset("cifar100", "train", root=tmp_path)


def test_cifar100_without_its_parts_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"cifar-100-python/train: cannot be read: No such file"):
        load_dataset("cifar100", "train", root=tmp_path)
    cifar(tmp_path, text_keys=True)
    (tmp_path / "cifar-100-python" / "meta").write_bytes(pickle.dumps({"label_names": []}))
    with pytest.raises(InputError, match=r"meta: expected a dict with 'fine_label_names', found a dict with \['label_"):
        load_dataset("cifar100", "train", root=tmp_path)


def test_a_pickle_inside_npz_is_refused(tmp_path):
    objects = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "cifar100.npz", train_images=objects, train_labels=objects, class_names=objects)
    with pytest.raises(InputError, match=r"cifar100.npz: expected numbers, found a pickled array"):
        load_dataset("cifar100", "train", root=tmp_path)
    np.savez(tmp_path / "cifar100.npz", train_images=np.zeros(1))
    with pytest.raises(InputError, match=r"cifar100.npz: expected the arrays .* found no train_labels"):
        load_dataset("cifar100", "train", root=tmp_path)
