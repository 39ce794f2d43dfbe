"""A data set of one's own: what its samples may be, and what is refused with the id of the sample."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset

from tpkd.config.loading import ConfigError, resolve_config
from tpkd.data.configured import load_data
from tpkd.data.dataset import NO_LABEL, path_id
from tpkd.data.loading import check_dataset, load_dataset
from tpkd.data.own import own_dataset
from tpkd.errors import InputError

CLASSES = ["cat", "dog"]


class Points(TorchDataset):
    """A map-style data set as users write them."""

    def __len__(self):
        return 5

    def __getitem__(self, position):
        return torch.arange(3.0) + position, position % 2, 10 * position


def test_samples_of_a_torch_data_set():
    data = own_dataset(Points(), "train", CLASSES)
    assert (data.name, data.kind, len(data), data.class_names) == ("python", "vector", 5, ("cat", "dog"))
    assert (data.labels.tolist(), data.ids.tolist()) == ([0, 1, 0, 1, 0], [0, 10, 20, 30, 40])
    np.testing.assert_array_equal(data.take([4, 1]), [[4.0, 5.0, 6.0], [1.0, 2.0, 3.0]])
    assert data.take([0]).dtype == np.float32
    assert data.subset([3, 1]).take([0]).tolist() == [[3.0, 4.0, 5.0]]
    assert data.input_size == 3


def image_forms():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    yield pixels, pixels
    yield torch.from_numpy(pixels).permute(2, 0, 1), pixels
    yield Image.fromarray(pixels), pixels
    yield pixels[..., 0], pixels[..., :1]
    yield Image.fromarray(pixels[..., 0]), pixels[..., :1]


@pytest.mark.parametrize(("x", "expected"), list(image_forms()))
def test_images_become_height_width_channels(x, expected):
    data = own_dataset([(x, "dog", "first")], "train", CLASSES)
    assert data.kind == "image"
    np.testing.assert_array_equal(data.take([0])[0], expected)
    assert (data.labels.tolist(), data.ids.tolist()) == ([1], [path_id("train/first")])


def test_images_may_differ_in_size():
    images = [np.zeros((side, 4, 3), np.uint8) for side in (4, 5)]
    data = own_dataset([(image, 0, number) for number, image in enumerate(images)], "train", CLASSES)
    assert [image.shape for image in data.take([0, 1])] == [(4, 4, 3), (5, 4, 3)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_arrays_of_any_shape_reach_the_network_as_float32(dtype):
    data = own_dataset([(torch.ones(2, 3, 4, dtype=dtype), 0, 0)], "train", CLASSES)
    assert (data.kind, data.take([0]).shape, data.take([0]).dtype) == ("vector", (1, 2, 3, 4), np.float32)


def test_texts_and_parts_without_labels():
    data = own_dataset([("hello", None, 1), ("bye", None, 2)], "train", CLASSES)
    assert (data.kind, data.inputs, data.labels.tolist()) == ("text", ("hello", "bye"), [NO_LABEL] * 2)


def test_the_fingerprint_is_that_of_the_samples():
    samples = [(np.ones(2), 0, 1), (np.zeros(2), 1, 2)]
    first = own_dataset(samples, "train", CLASSES).fingerprint
    assert first == own_dataset(tuple(samples), "train", CLASSES).fingerprint
    others = [
        [(np.ones(2), 0, 1), (np.full(2, 1e-3), 1, 2)],
        [(np.ones(2), 1, 1), (np.zeros(2), 1, 2)],
        [(np.ones(2), 0, 1), (np.zeros(2), 1, 3)],
        samples[::-1],
    ]
    prints = {first, *(own_dataset(other, "train", CLASSES).fingerprint for other in others)}
    assert len(prints) == 5
    whole = own_dataset(Points(), "train", CLASSES)
    assert whole.subset([1, 2]).fingerprint != whole.subset([1, 3]).fingerprint != whole.fingerprint


def test_samples_go_to_another_process():
    data = own_dataset(Points(), "train", CLASSES)
    again = pickle.loads(pickle.dumps(data))
    np.testing.assert_array_equal(again.take([2]), data.take([2]))
    assert again.fingerprint == data.fingerprint


ONE = (np.ones(2), 0, "a")


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "expected at least one sample, found none"),
        ([ONE, (np.ones(2), 0)], r"position 1: expected \(x, y, id\), found 2 values"),
        ([3], r"position 0: expected \(x, y, id\), found int"),
        ([ONE, (np.ones(2), 1, "a")], "sample 'a': expected different ids, found it at positions 0 and 1"),
        ([(np.ones(2), 0, None)], "position 0: id: expected a whole number or a text, found None"),
        ([(np.ones(2), 0, True)], "position 0: id: expected a whole number or a text, found True"),
        ([(np.ones(2), 0, 2**63)], "position 0: id: expected a whole number or a text"),
        ([(np.ones(2), 2, "a")], "sample 'a': y: expected a class from 0 to 1, its name, or None .*, found 2"),
        ([(np.ones(2), -100, 7)], "sample 7: y: expected a class from 0 to 1, .*, found -100"),
        ([(np.ones(2), 1.0, 7)], r"sample 7: y: expected a class from 0 to 1, .*, found 1\.0"),
        ([(np.ones(2), "dig", 7)], "sample 7: y: expected one of the classes, found 'dig'; did you mean dog?"),
        ([ONE, (np.ones(2), None, "b")], "expected labels from 0 to 1, found -100 in row 1"),
        (
            [ONE, (np.ones(3), 0, "b")],
            r"'b': x: expected vector \(2,\) as the first sample, found vector \(3,\)",
        ),
        ([ONE, ("text", 0, "b")], r"sample 'b': x: expected vector \(2,\) as the first sample, found text"),
        ([(np.array([1, np.nan]), 0, "b")], "sample 'b': x: expected finite numbers that float32 holds, found nan"),
        ([(np.array([1e300]), 0, "b")], "sample 'b': x: expected finite numbers that float32 holds, found inf"),
        ([(np.ones(2, np.int64), 0, "b")], r"sample 'b': x: expected floating-point numbers, .* int64 of shape \(2,\)"),
        ([(np.empty(0), 0, "b")], r"sample 'b': x: expected floating-point numbers"),
        ([(np.zeros((4, 4, 5), np.uint8), 0, "b")], r"sample 'b': x: expected an image as uint8 .* \(4, 4, 5\)"),
        ([(" ", 0, "b")], "sample 'b': x: expected a text, found none"),
        ([({"input_ids": 3}, 0, "b")], "sample 'b': x: expected a text, an array or an image, found dict"),
    ],
)
def test_what_is_wrong_is_refused_with_the_sample(samples, message):
    with pytest.raises(InputError, match=message) as caught:
        own_dataset(samples, "train", CLASSES)
    assert str(caught.value).startswith("python (train)")


def test_samples_that_change_are_refused():
    class Augmented(Points):
        def __getitem__(self, position):
            return torch.rand(3), 0, position

    with pytest.raises(InputError, match=r"sample 0: expected the same x each time .* belongs to views"):
        own_dataset(Augmented(), "train", CLASSES)


def test_a_sample_that_has_another_form_later_is_refused():
    samples = [(np.ones(2), 0, "a"), (np.ones(2), 1, "b")]
    data = own_dataset(samples, "train", CLASSES)
    samples[1] = (np.ones(3), 1, "b")
    with pytest.raises(InputError, match=r"sample 'b': x: expected vector \(2,\) as the first sample"):
        data.take([1])


def test_a_stream_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            yield ONE

    with pytest.raises(InputError, match="expected a data set with a length and samples by position, found Stream"):
        own_dataset(Stream(), "train", CLASSES)


def test_no_command_can_load_it():
    for load in (check_dataset, lambda name: load_dataset(name, "train")):
        with pytest.raises(InputError, match=r"'python' is a data set that a program gives to tpkd\.training\.fit"):
            load("python")


def own_config(**data):
    rest = {"student": {"model": "builtin:mlp"}, "objective": "ce", "epochs": 1}
    optimizer = {"name": "sgd", "learning_rate": 0.1}
    return resolve_config({"output": "runs/x", "data": {"name": "python", **data}, "optimizer": optimizer, **rest})


def test_draws_and_limits_are_those_of_every_data_set():
    own = {"train": own_dataset(Points(), "train", CLASSES)}
    kept, held = (load_data(own_config(test=0.4), split, own) for split in ("train", "test"))
    assert len(kept) + len(held) == 5
    assert not set(kept.ids) & set(held.ids)
    assert len(load_data(own_config(per_class=1), "train", own)) == 2
    assert len(load_data(own_config().model_copy(update={"limit": 3}), "train", own)) == 3
    with pytest.raises(ConfigError, match=r"data: expected a test part, found train; or test: 0\.2 to hold out"):
        load_data(own_config(), "test", own)


def test_labels_are_left_out_where_the_configuration_says_so():
    own = {"train": own_dataset(Points(), "train", CLASSES)}
    assert not load_data(own_config(unlabelled=True), "train", own).labelled
    bare = {"train": own["train"].without_labels()}
    with pytest.raises(ConfigError, match="data: unlabelled: expected true: the training samples have no labels"):
        load_data(own_config(), "train", bare)
