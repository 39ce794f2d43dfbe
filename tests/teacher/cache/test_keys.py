import numpy as np
import pytest

from tpkd.teacher.cache.keys import SPARSEST, as_keys, check_width


@pytest.mark.parametrize("values", [[3, 1], np.array([3, 1], np.uint8), np.array([3, 1], np.int32)])
def test_ids_become_int64(values):
    keys = as_keys("sample_ids", values)
    assert (keys.dtype, keys.tolist()) == (np.int64, [3, 1])


@pytest.mark.parametrize("values", [[1.0], [[1]], 3, ["a"], [True]])
def test_what_is_not_an_id_is_refused_by_name(values):
    with pytest.raises(ValueError, match="view_ids: expected integers of shape"):
        as_keys("view_ids", values)


def test_an_index_has_so_many_places_for_a_row_and_no_more():
    assert check_width(10, 10, 0, SPARSEST - 1) == SPARSEST
    for lowest, highest in ((0, SPARSEST), (-1, 0)):
        with pytest.raises(ValueError, match=f"view_ids: expected small numbers from 0, got {lowest} to {highest}"):
            check_width(10, 10, lowest, highest)
