import numpy as np
import pytest

from tpkd.geometry.top_k import TopK
from tpkd.teacher.cache.columns import TOP_K_COLUMNS, Column, index_dtype, logits_columns, top_k_columns


@pytest.mark.parametrize(
    ("num_classes", "dtype"),
    [(2, "uint8"), (256, "uint8"), (257, "uint16"), (65_536, "uint16"), (65_537, "int32"), (2**31, "int32")],
)
def test_the_last_class_fits_and_no_smaller_type_would_do(num_classes, dtype):
    assert index_dtype(num_classes) == dtype
    assert np.array([num_classes - 1], np.dtype(dtype)).item() == num_classes - 1
    assert index_dtype(2**31 + 1) == "int64"


def test_truncated_rows_are_named_as_the_type_that_is_read_back():
    assert tuple(top_k_columns(10, "float16", 3)) == TOP_K_COLUMNS == tuple(TopK.__dataclass_fields__)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_only_the_rest_keeps_its_precision_whatever_the_cache_has(dtype):
    columns = top_k_columns(1000, dtype, 8)
    assert {name: column.dtype for name, column in columns.items()} == {
        "log_probs": dtype,
        "indices": "uint16",
        "label_log_probs": dtype,
        "rest_log_probs": "float32",
    }
    assert logits_columns(1000, dtype) == {"logits": Column(dtype, 1000)}


def test_bytes_are_those_of_an_array_of_the_shape():
    for column in (*top_k_columns(1000, "float16", 8).values(), Column("float32", 7)):
        assert column.row_bytes * 3 == np.zeros(column.shape(3), column.dtype).nbytes
