"""A teacher's largest log-probabilities: what a cache gets of them, and what is refused."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from importing.files import answers, importing_config, top_k_arrays
from tpkd.data.class_map import ClassMap
from tpkd.errors import InputError
from tpkd.importing import largest as module
from tpkd.importing.largest import LargestSource


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    dataset, logits = answers(importing_config(tmp_path_factory.mktemp("largest")))
    return dataset, top_k_arrays(logits[:, 0], dataset.labels)


def write(path, arrays):
    whole = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    if path.suffix == ".npz":
        np.savez(path, **whole)
    else:
        save_file(whole, path)
    return path


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_classes_come_largest_first_whatever_their_order(case, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(module, "rows_per_block", lambda size: 7)
    dataset, arrays = case
    shuffled = arrays | {name: arrays[name][:, [1, 2, 0]] for name in ("log_probs", "indices")}
    source = LargestSource(write(tmp_path / f"top.{kind}", shuffled), dataset, 1, None)
    source.check(np.arange(60), "float16")
    assert (source.rows, source.num_views, source.top_k) == (60, 1, 3)
    found = source.stream(np.arange(60)).read(0, 60)
    for name, values in arrays.items():
        np.testing.assert_array_equal(found[name].numpy(), values)


def test_of_equal_ones_the_lower_class_is_first(case, tmp_path):
    dataset, _ = case
    equal = np.full((60, 3), np.log(0.2), np.float32)
    indices = np.tile([9, 2, 4], (60, 1))
    label = np.where(np.isin(dataset.labels, [9, 2, 4]), np.log(0.2), np.log(0.1)).astype(np.float32)
    rest = np.where(np.isin(dataset.labels, [9, 2, 4]), np.log(0.4), np.log(0.3)).astype(np.float32)
    made = {"log_probs": equal, "indices": indices, "label_log_probs": label, "rest_log_probs": rest}
    source = LargestSource(write(tmp_path / "top.npz", made), dataset, 1, None)
    source.check(np.arange(60), "float16")
    assert source.stream(np.arange(60)).read(0, 60)["indices"].tolist() == [[2, 4, 9]] * 60


def set_to(name, place, value):
    def change(arrays):
        arrays[name][place] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_to("indices", (4, 2), -1), "indices: row 4: expected a class in every place, found -1"),
        (set_to("indices", (4, 2), 10), "indices: row 4: expected classes from 0 to 9"),
        (
            lambda a: a["indices"].__setitem__((50, 1), a["indices"][50, 0]),
            "indices: row 50: expected every class once",
        ),
        (set_to("log_probs", (30, 0), -np.inf), "log_probs: row 30: expected finite log-probabilities, found -inf"),
        (set_to("log_probs", (30, 0), 3.0), "log_probs: row 30: expected log-probabilities, which are at most 0"),
        (
            set_to("label_log_probs", 31, np.nan),
            "label_log_probs: row 31: expected finite log-probabilities, found nan",
        ),
        (set_to("rest_log_probs", 31, np.nan), "rest_log_probs: row 31: "),
        (set_to("rest_log_probs", 31, -0.1), "row 31: expected .* total of 1, found"),
        (lambda a: a["label_log_probs"].__setitem__(slice(None), a["label_log_probs"][::-1].copy()), "label"),
    ],
)
def test_rows_that_no_truncation_leaves_are_refused_by_their_number(case, tmp_path, change, message, monkeypatch):
    monkeypatch.setattr(module, "rows_per_block", lambda size: 25)
    dataset, arrays = case
    arrays = {name: values.copy() for name, values in arrays.items()}
    change(arrays)
    path = write(tmp_path / "top.npz", arrays)
    with pytest.raises(InputError, match=message) as caught:
        LargestSource(path, dataset, 1, None).check(np.arange(60), "float16")
    assert str(path) in str(caught.value)


def test_a_label_above_the_kept_classes_shows_that_they_are_not_the_largest(case, tmp_path):
    dataset, _ = case
    labels = dataset.labels
    others = np.stack([(labels + shift) % 10 for shift in (1, 2, 3)], 1)
    made = {
        "log_probs": np.full((60, 3), np.log(0.1), np.float32),
        "indices": others,
        "label_log_probs": np.full(60, np.log(0.6), np.float32),
        "rest_log_probs": np.full(60, np.log(0.1), np.float32),
    }
    source = LargestSource(write(tmp_path / "top.npz", made), dataset, 1, None)
    with pytest.raises(InputError, match="label_log_probs: row 0: expected at most the least of log_probs"):
        source.check(np.arange(60), "float16")


def test_rows_of_no_sample_may_hold_anything_and_row_numbers_stay_those_of_the_file(case, tmp_path):
    dataset, arrays = case
    arrays = {name: values.copy() for name, values in arrays.items()}
    arrays["log_probs"][[0, 20]] = np.nan
    positions = np.arange(60)
    positions[[0, 20]] = -1
    source = LargestSource(write(tmp_path / "top.npz", arrays), dataset, 1, None)
    source.check(positions, "float16")
    arrays["rest_log_probs"][21] = -0.1
    source = LargestSource(write(tmp_path / "more.npz", arrays), dataset, 1, None)
    with pytest.raises(InputError, match=r"more\.npz: row 21: expected"):
        source.check(positions, "float16")


def test_what_does_not_go_with_a_truncated_file(case, tmp_path):
    dataset, arrays = case
    for name in ("label_log_probs", "rest_log_probs"):
        path = write(tmp_path / f"no-{name}.npz", {key: values for key, values in arrays.items() if key != name})
        with pytest.raises(InputError, match=rf"expected {name} \(N\) beside log_probs and indices, found none"):
            LargestSource(path, dataset, 1, None)
    path = write(tmp_path / "top.npz", arrays)
    with pytest.raises(InputError, match=r"expected logits \(N, views, classes\), because every sample has 2 views"):
        LargestSource(path, dataset, 2, None)
    class_map = ClassMap.from_names(dataset.class_names[::-1], dataset.class_names)
    with pytest.raises(InputError, match=r"expected indices of the classes of digits, and no teacher\.class_names"):
        LargestSource(path, dataset, 1, class_map)
    wide = {name: np.repeat(values, 4, 1) if values.ndim == 2 else values for name, values in arrays.items()}
    with pytest.raises(InputError, match="log_probs: expected at most the 10 classes of digits per row, found 12"):
        LargestSource(write(tmp_path / "wide.npz", wide), dataset, 1, None)
