"""The files of the folder hold every example once, in the order of the logits."""

import base64

import numpy as np
import pytest
import torch

import tpkd
from audit.cases import make_case
from audit.test_packing import taken
from tpkd.audit.collecting import CHUNK_ROWS
from tpkd.audit.details import SCALARS

TYPES = {"Float64Array": "<f8", "Float32Array": "<f4", "Uint16Array": "<u2", "Uint32Array": "<u4", "Uint8Array": "<u1"}


def column(packed):
    return np.frombuffer(base64.b64decode(packed["base64"]), TYPES[packed["type"]])


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    case = make_case(tmp_path_factory.mktemp("audit"))
    case.audit()
    return case


def test_the_index_is_of_every_example(case):
    data = case.folder / "audit" / "data"
    name, index = taken(data / "index.js")
    assert name == "index"
    np.testing.assert_array_equal(column(index["label"]), case.labels)
    np.testing.assert_array_equal(column(index["row"]), np.arange(len(case.labels)))
    assert index["id"] == [str(row + 1000) for row in range(len(case.labels))]
    for number, logits in enumerate(case.students):
        _, own = taken(data / f"index-{number}.js")
        np.testing.assert_array_equal(column(own["answer"]), logits.argmax(-1))


def test_chunks_are_of_every_example(case):
    data, rows = case.folder / "audit" / "data", len(case.labels)
    chunks = -(-rows // CHUNK_ROWS)
    shown = [text for number in range(chunks) for text in taken(data / "inputs" / f"{number}.js")[1]["shown"]]
    assert shown == [f"text of row {row}" for row in range(rows)]
    state = tpkd.diagnose(*map(torch.from_numpy, (case.students[1], case.teacher, case.labels)))
    scalars = [column(taken(data / "details-1" / f"{number}.js")[1]["scalars"]) for number in range(chunks)]
    price = np.concatenate(scalars).reshape(rows, len(SCALARS))[:, SCALARS.index("transfer_cost")]
    np.testing.assert_array_equal(price, state.transfer_cost)
    assert not (data / "inputs" / f"{chunks}.js").exists()
