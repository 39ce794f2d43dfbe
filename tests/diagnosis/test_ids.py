"""Names of examples, and the rows of a cache that they belong to."""

import numpy as np
import pytest

from tpkd.diagnosis.ids import check_ids, read_ids, read_keys
from tpkd.errors import InputError


def test_names_of_a_few_rows(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("a\nb\nc\n")
    assert read_ids(path, [2, 0]) == {0: "a", 2: "c"}
    assert read_ids(None, [5]) == {5: "5"}


def test_keys_with_and_without_views(tmp_path):
    np.save(tmp_path / "samples.npy", np.array([4, 2]))
    samples, views = read_keys(tmp_path / "samples.npy")
    assert (samples.tolist(), views) == ([4, 2], None)
    (tmp_path / "both.txt").write_text("4 1\n2,0\n")
    samples, views = read_keys(tmp_path / "both.txt")
    assert (samples.tolist(), views.tolist()) == ([4, 2], [1, 0])


def test_more_fewer_and_no_ids_are_refused(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("1\n2\n")
    with pytest.raises(InputError, match=r"ids\.txt: expected 3 ids as in teacher, found 2"):
        check_ids(path, 3, "teacher")
    path.write_text("")
    with pytest.raises(InputError, match=r"ids\.txt: expected the sample id of every example, found none"):
        read_keys(path)
