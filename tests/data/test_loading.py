"""Data sets by name: what is unknown is refused."""

import pytest

from tpkd.data.loading import check_dataset, load_dataset
from tpkd.errors import InputError


def test_unknown_names_are_refused(monkeypatch):
    with pytest.raises(InputError, match=r"data set: expected one of digits, .*csv:PATH.*, found 'mnist'"):
        load_dataset("mnist", "train")
    with pytest.raises(InputError, match=r"data set: expected one of .* found 'folder:'"):
        load_dataset("folder:", "train")
    with pytest.raises(InputError, match=r"split: expected train, test or validation, found 'val'"):
        load_dataset("digits", "val")
    monkeypatch.delenv("TPKD_DATA", raising=False)
    with pytest.raises(InputError, match=r"clinc150: expected the folder that holds it .* TPKD_DATA"):
        load_dataset("clinc150", "train")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("banking.csv", "did you mean csv:banking.csv?"),
        ("data/questions.PARQUET", "did you mean parquet:data/questions.PARQUET?"),
        ("features.npz", "did you mean vector:features.npz?"),
        ("data/photos", "a path needs its kind before it, such as folder:data/photos or csv:data/photos"),
        ("digit", "did you mean digits?"),
    ],
)
def test_a_path_without_its_kind_is_refused_with_what_is_missing(name, hint):
    with pytest.raises(InputError) as caught:
        check_dataset(name)
    assert str(caught.value).endswith(f"found {name!r}; {hint}")
