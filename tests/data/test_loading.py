"""Data sets by name: what is unknown is refused."""

import pytest

from tpkd.data.loading import load_dataset
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
