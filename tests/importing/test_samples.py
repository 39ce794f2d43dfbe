"""Which sample a row belongs to: by order, by numbers, by names of a column or by paths of a folder."""

import numpy as np
import pytest

from importing.files import write
from tpkd.data.dataset import Dataset, ImageFiles, path_id
from tpkd.errors import InputError
from tpkd.importing.samples import find_samples, match_ids

NAMES = ["a", "b/c", "7", "ü"]


def dataset_of(ids, inputs=None):
    count = len(ids)
    texts = tuple(f"text {number}" for number in range(count))
    return Dataset("toy", "train", "text", inputs or texts, np.arange(count) % 2, np.array(ids), ("x", "y"))


NUMBERED = dataset_of([30, 7, 2**62, 9])
NAMED = dataset_of([path_id(f"train/{name}") for name in NAMES])
FOLDER = dataset_of([path_id(name) for name in NAMES])


@pytest.mark.parametrize(
    ("dataset", "names", "expected"),
    [
        (NUMBERED, ["9", "30", str(2**62), "7"], [3, 0, 2, 1]),
        (NUMBERED, ["1", "9", "30", str(2**62), "7"], [-1, 3, 0, 2, 1]),
        (NAMED, ["ü", "7", "b/c", "a"], [3, 2, 1, 0]),
        (FOLDER, ["ü", "7", "b/c", "nothing", "a"], [3, 2, 1, -1, 0]),
        (dataset_of([path_id("train/1"), path_id("train/2")]), ["2", "1"], [1, 0]),
    ],
)
def test_ids_are_numbers_names_or_paths(dataset, names, expected):
    assert match_ids("ids.txt", names, dataset).tolist() == expected


@pytest.mark.parametrize(
    ("dataset", "names", "message"),
    [
        (
            NUMBERED,
            ["9", "30", "7"],
            rf"ids: expected an id of every training sample, found none of 1, such as id {2**62}",
        ),
        (NUMBERED, ["9", "x", str(2**62), "7"], r"found none of 1, such as id 30 \(sample 0 of toy\)"),
        (NUMBERED, ["9", "30", "7", "9" * 19], "found none of 1"),
        (NUMBERED, ["9", "30", "7", "9" * 20], "found none of 1"),
        (NUMBERED, [], "found none of 4"),
        (NAMED, ["ü", "7", "a", "c"], "found none of 1, such as id"),
        (NUMBERED, ["9", "30", "7", "30"], "ids: row 3: expected different ids, found '30' as in row 1"),
    ],
)
def test_missing_and_repeated_ids_are_named(dataset, names, message):
    with pytest.raises(InputError, match=message):
        match_ids("ids", names, dataset)


def test_a_missing_image_is_named_by_its_path(tmp_path):
    folder = dataset_of(
        [path_id(name) for name in ("cat/1.png", "dog/2.png")], ImageFiles(tmp_path, ("cat/1.png", "dog/2.png"))
    )
    with pytest.raises(InputError, match=r"such as dog/2\.png \(sample 1 of toy\)"):
        match_ids("ids", ["cat/1.png"], folder)


def test_without_ids_rows_are_in_the_order_of_the_data_and_as_many(tmp_path):
    path = write(tmp_path / "logits.npy", np.zeros((4, 2)))
    assert find_samples(path, 4, None, NUMBERED).tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match=r"logits\.npy: expected 4 rows, .* found 5; name the samples .* --ids"):
        find_samples(path, 5, None, NUMBERED)


@pytest.mark.parametrize("name", ["ids.txt", "ids.npy", "ids.json", "ids.csv"])
def test_ids_of_a_file_of_their_own(tmp_path, name):
    source, ids = write(tmp_path / "logits.npy", np.zeros((4, 2))), tmp_path / name
    numbers = [9, 30, 2**62, 7]
    if name == "ids.npy":
        np.save(ids, numbers)
    elif name == "ids.json":
        ids.write_text("[" + ", ".join(f'"{number}"' for number in numbers) + "]")
    else:
        ids.write_text(("id\n" if name == "ids.csv" else "") + "".join(f"{number}\n" for number in numbers))
    assert find_samples(source, 4, ids, NUMBERED).tolist() == [3, 0, 2, 1]
    with pytest.raises(InputError, match=rf"{name}: expected 5 ids as .*logits\.npy has rows, found 4"):
        find_samples(source, 5, ids, NUMBERED)


@pytest.mark.parametrize("kind", ["npz", "safetensors", "pt", "csv", "parquet"])
@pytest.mark.parametrize("key", ["ids", "sample_ids"])
def test_ids_beside_the_logits_are_used(tmp_path, kind, key):
    path = write(tmp_path / f"logits.{kind}", np.zeros((4, 2)), **{key: np.array([9, 30, 2**62, 7])})
    assert find_samples(path, 4, None, NUMBERED).tolist() == [3, 0, 2, 1]
    other = tmp_path / "ids.txt"
    other.write_text(f"30\n7\n{2**62}\n9\n")  # what is given wins
    assert find_samples(path, 4, other, NUMBERED).tolist() == [0, 1, 2, 3]
