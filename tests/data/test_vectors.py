"""Precomputed features: what is read, what is refused, and that heads train on them."""

import json
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tpkd.config.loading import resolve_config
from tpkd.data.loading import load_dataset
from tpkd.errors import InputError
from tpkd.training.loop import train

FEATURES = np.arange(12, dtype=np.float32).reshape(4, 3)
LABELS = np.array([2, 0, 2, 1])
NAMES = ["cat", "dog", "eel"]


def write(path, features=FEATURES, labels=LABELS, **more):
    if path.suffix == ".npz":
        np.savez(path, features=features, labels=labels, **more)
    elif path.suffix == ".safetensors":
        names = more.pop("class_names", None)
        arrays = {"features": features, "labels": labels, **more}
        metadata = None if names is None else {"class_names": json.dumps(names)}
        save_file({name: torch.as_tensor(array) for name, array in arrays.items()}, path, metadata=metadata)
    else:
        np.save(path, features)
        for name, array in {"labels": labels, **more}.items():
            np.save(path.with_name(f"{path.stem}.{name}.npy"), array)


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "npy"])
def test_every_format_gives_the_same_data(tmp_path, suffix):
    write(tmp_path / f"train.{suffix}")
    write(tmp_path / f"test.{suffix}", FEATURES[:1] + 1, LABELS[:1])
    train_part, test = (load_dataset(f"vector:{tmp_path}", split) for split in ("train", "test"))
    assert (train_part.kind, train_part.inputs.dtype) == ("vector", np.float32)
    assert np.array_equal(train_part.inputs, FEATURES)
    assert (train_part.class_names, train_part.labels.tolist()) == (("0", "1", "2"), LABELS.tolist())
    assert (train_part.ids.tolist(), test.ids.tolist(), test.labels.tolist()) == ([0, 1, 2, 3], [4], [2])
    assert np.array_equal(test.inputs, FEATURES[:1] + 1)
    alone = load_dataset(f"vector:train.{suffix}", "train", root=tmp_path)
    assert alone.fingerprint == train_part.fingerprint


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_class_names_and_ids(tmp_path, suffix):
    write(tmp_path / f"a.{suffix}", labels=np.array([2, 0, 2, 0]), class_names=NAMES, ids=np.array([7, 8, 9, 10]))
    data = load_dataset(f"vector:a.{suffix}", "train", root=tmp_path)
    assert (data.class_names, data.labels.tolist()) == (("cat", "eel"), [1, 0, 1, 0])
    write(tmp_path / f"b.{suffix}", FEATURES[::-1].copy(), np.array([0, 2, 0, 2]), class_names=NAMES, ids=[10, 9, 8, 7])
    assert load_dataset(f"vector:b.{suffix}", "train", root=tmp_path).ids.tolist() == data.ids.tolist()[::-1]


def test_labels_may_be_names_and_half_precision_is_read(tmp_path):
    write(tmp_path / "a.npz", FEATURES.astype(np.float16), np.array(["b", "a", "b", "a"]))
    data = load_dataset(f"vector:{tmp_path}/a.npz", "train")
    assert (data.class_names, data.inputs.dtype) == (("a", "b"), np.float32)
    write(tmp_path / "b.safetensors", torch.from_numpy(FEATURES).bfloat16())
    assert np.array_equal(load_dataset(f"vector:{tmp_path}/b.safetensors", "train").inputs, FEATURES)


NAN, LARGE = FEATURES.copy(), FEATURES.astype(np.float64)
NAN[2, 1], LARGE[1, 0] = np.nan, 1e300


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "npy"])
@pytest.mark.parametrize(
    ("features", "labels", "problem"),
    [
        (NAN, LABELS, "line 3: features: expected finite numbers that float32 holds, found nan in column 2"),
        (LARGE, LABELS, "line 2: features: expected finite numbers that float32 holds, found inf in column 1"),
        (FEATURES, LABELS[:3], r"labels: expected shape \(4,\) as the features, found \(3,\)"),
        (FEATURES, LABELS[:, None], r"labels: expected shape \(4,\) as the features, found \(4, 1\)"),
        (FEATURES, LABELS.astype(np.float32), "labels: expected whole numbers"),
        (FEATURES, LABELS > 1, "labels: expected whole numbers"),
        (FEATURES[0], LABELS, r"features: expected shape \(N, D\) with at least one row, found \(3,\)"),
        (FEATURES[:0], LABELS[:0], r"features: expected shape \(N, D\) with at least one row, found \(0, 3\)"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, suffix, features, labels, problem):
    write(tmp_path / f"a.{suffix}", features, labels)
    with pytest.raises(InputError, match=rf"a.{suffix}: {problem}") as caught:
        load_dataset(f"vector:{tmp_path}/a.{suffix}", "train")
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", embeddings=FEATURES, labels=LABELS)
    with pytest.raises(InputError, match=r"a.npz: expected the arrays features and labels, found embeddings, labels"):
        load_dataset(f"vector:{tmp_path}/a.npz", "train")
    np.save(tmp_path / "b.npy", FEATURES)
    with pytest.raises(InputError, match=r"b.npy: .*expected its labels in b.labels.npy"):
        load_dataset(f"vector:{tmp_path}/b.npy", "train")
    with pytest.raises(InputError, match=r"c.pt: expected a .npz, .safetensors, .npy file, found the suffix '.pt'"):
        load_dataset(f"vector:{tmp_path}/c.pt", "train")
    with pytest.raises(InputError, match=r"d.npz: cannot be read: No such file"):
        load_dataset(f"vector:{tmp_path}/d.npz", "train")


def test_labels_beyond_the_class_names_and_other_widths_are_refused(tmp_path):
    write(tmp_path / "train.npz", class_names=NAMES[:2])
    with pytest.raises(
        InputError, match=r"train.npz: line 1: labels: expected 0 to 1, one of its 2 class names, found 2"
    ):
        load_dataset(f"vector:{tmp_path}", "train")
    write(tmp_path / "train.npz")
    write(tmp_path / "test.npz", FEATURES[:, :2])
    with pytest.raises(InputError, match=r"test.npz: features: expected 3 numbers per row as .*train.npz, found 2"):
        load_dataset(f"vector:{tmp_path}", "test")


def test_pickles_and_bombs_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", features=FEATURES, labels=np.array([{}, {}, {}, {}], dtype=object))
    with pytest.raises(InputError, match=r"a.npz: expected numbers, found a pickled array"):
        load_dataset(f"vector:{tmp_path}/a.npz", "train")
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (4, 1000000000), }"
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("features.npy", header.ljust(127) + b"\n")
        archive.writestr("labels.npy", b"")
    with pytest.raises(InputError, match=r"b.npz: expected 32000000128 bytes for shape"):
        load_dataset(f"vector:{tmp_path}/b.npz", "train")


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "npy"])
def test_truncated_files_are_one_line(tmp_path, suffix):
    write(tmp_path / f"a.{suffix}")
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=rf"a.{suffix}: ") as caught:
        load_dataset(f"vector:{path}", "train")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"hidden": []}])
def test_a_head_on_frozen_features_trains_and_takes_its_size_from_the_data(tmp_path, options):
    random = np.random.default_rng(0)
    centres = 3 * random.normal(size=(3, 10))
    for split, rows in (("train", 90), ("test", 30)):
        labels = np.arange(rows) % 3
        write(tmp_path / f"{split}.npz", centres[labels] + random.normal(size=(rows, 10)), labels, class_names=NAMES)
    config = resolve_config(
        {
            "output": str(tmp_path / "run"),
            "data": {"name": f"vector:{tmp_path}"},
            "student": {"model": "builtin:mlp", "options": options},
            "objective": "ce",
            "optimizer": {"name": "sgd", "learning_rate": 0.05},
            "epochs": 5,
            "batch_size": 16,
            "tensorboard": False,
            "device": "cpu",
        }
    )
    assert train(config).accuracy > 0.9
