import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tpkd.data.dataset import Dataset
from tpkd.errors import InputError


def images(**changes):
    settings = {
        "name": "toy",
        "split": "train",
        "kind": "image",
        "inputs": np.arange(5 * 12, dtype=np.uint8).reshape(5, 2, 2, 3),
        "labels": np.array([0, 1, 0, 2, 1]),
        "ids": np.array([3, 1, 4, 15, 9]),
        "class_names": ("a", "b", "c"),
    }
    return Dataset(**{**settings, **changes})


def texts(*inputs, class_names=("a", "b")):
    return Dataset("toy", "train", "text", inputs, np.zeros(len(inputs), np.int64), np.arange(len(inputs)), class_names)


def test_take_and_subset_keep_inputs_with_their_samples():
    data = images()
    part = data.subset([4, 1])
    assert part.ids.tolist() == [9, 1]
    assert part.labels.tolist() == [1, 1]
    assert np.array_equal(part.take([0]), data.take([4]))
    assert texts("x", "yy", "zzz").subset(np.array([2, 0])).take([0, 1]) == ["zzz", "x"]


def test_every_part_of_the_data_is_in_the_fingerprint():
    pixels = images().inputs.copy()
    pixels[4, 1, 1, 2] += 1
    changed = [
        images(inputs=pixels),
        images(labels=np.array([0, 1, 0, 2, 2])),
        images(ids=np.array([3, 1, 4, 15, 10])),
        images(class_names=("a", "b", "d")),
        images().subset([1, 0, 2, 3, 4]),
        images().subset([0, 1, 2, 3]),
        images(inputs=images().inputs.reshape(5, 1, 4, 3)),
    ]
    fingerprints = {data.fingerprint for data in [images(), *changed]}
    assert len(fingerprints) == len(changed) + 1


def test_the_fingerprint_is_of_the_content_alone():
    data = images()
    assert images().fingerprint == data.fingerprint
    assert replace(data, name="other", split="test").fingerprint == data.fingerprint
    strided = np.repeat(data.inputs, 2, axis=1)[:, ::2]
    assert images(inputs=strided, labels=data.labels.astype(np.int32)).fingerprint == data.fingerprint
    assert data.subset(range(5)).fingerprint == data.fingerprint


def test_neighbouring_texts_do_not_run_together():
    fingerprints = {texts("ab", "c").fingerprint, texts("a", "bc").fingerprint, texts("abc", "").fingerprint}
    assert len(fingerprints) == 3
    assert texts("a", class_names=("x", "yz")).fingerprint != texts("a", class_names=("xy", "z")).fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.array([0, 1])}, "found 5 inputs, 2 labels and 5 ids"),
        ({"labels": np.array([0, 1, 3, 0, 0])}, "expected labels from 0 to 2, found 3 in row 2"),
        ({"labels": np.array([0, -1, 0, 0, 0])}, "expected labels from 0 to 2, found -1 in row 1"),
        ({"ids": np.array([3, 1, 4, 1, 5])}, "sample id 1 occurs more than once"),
        ({"inputs": np.empty((0, 2, 2, 3), np.uint8), "labels": np.array([]), "ids": np.array([])}, "at least one"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(InputError, match=rf"toy \(train\): .*{message}"):
        images(**changes)


def test_importing_the_package_loads_no_optional_library():
    code = "import sys, tpkd.data; assert not {'sklearn', 'PIL', 'pydantic', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("names", [("a", "b", "a"), ("a", "", "b")])
def test_class_names_are_distinct_and_not_empty(names):
    with pytest.raises(InputError, match=r"toy \(train\): class names: expected 3 different names, found"):
        Dataset("toy", "train", "text", ("x",), np.array([0]), np.array([0]), names)
