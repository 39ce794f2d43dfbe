"""The table of all examples, as other tools read it."""

import csv

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

import tpkd
from audit.cases import make_case
from tpkd.audit.table import STUDENT_COLUMNS, _prefixes, check_table
from tpkd.errors import InputError


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_numbers_are_those_of_the_diagnosis_unrounded(tmp_path, suffix):
    case = make_case(tmp_path)
    case.audit(students=1, table=tmp_path / f"table.{suffix}")
    read = pandas.read_csv if suffix == "csv" else pandas.read_parquet
    table = read(tmp_path / f"table.{suffix}")
    state = tpkd.diagnose(*map(torch.from_numpy, (case.students[0], case.teacher, case.labels)))
    for name in ("transfer_cost", "conditional_loss", "imitation_loss", "retention", "teacher_confidence"):
        np.testing.assert_allclose(table[name], getattr(state, name), rtol=1e-15)  # what pandas may round
    np.testing.assert_array_equal(table["blocked"], state.blocked)
    np.testing.assert_array_equal(table["right"], case.students[0].argmax(-1) == case.labels)
    assert table["label"].tolist() == [case.class_names[label] for label in case.labels]
    assert table["text"][3] == "text of row 3"
    assert set(STUDENT_COLUMNS) <= set(table.columns)


def test_columns_of_several_students_have_their_names_in_front(tmp_path):
    make_case(tmp_path).audit(table=tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 150
    assert {"student_0_margin", "student_1_margin"} <= set(rows[0])
    assert "margin" not in rows[0]


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_pandas_reads_one_row_per_example_with_scalars_alone(tmp_path, suffix, kind):
    case = make_case(tmp_path, rows=20)
    case.audit(kind=kind, table=tmp_path / f"table.{suffix}")
    read = pandas.read_csv if suffix == "csv" else pandas.read_parquet
    table = read(tmp_path / f"table.{suffix}")
    assert table["row"].tolist() == list(range(20))
    assert table["example"].is_unique
    assert table.map(pandas.api.types.is_scalar).all(axis=None)
    assert table.notna().all(axis=None)
    assert {str(table[name].dtype) for name in table if name.endswith(("right", "blocked"))} == {"bool"}


def test_prefixes_are_plain_and_different():
    assert _prefixes(["kd/logits", "kd-logits", "tpkd"]) == ["kd_logits_0_", "kd_logits_1_", "tpkd_"]


def test_images_become_files_that_other_tools_show(tmp_path):
    make_case(tmp_path, rows=20).audit(kind="image", table=tmp_path / "table.csv")
    table = pandas.read_csv(tmp_path / "table.csv")
    assert len(set(table["filepath"])) == 20
    pixels = np.asarray(Image.open(table["filepath"][16]))
    assert pixels.shape == (8, 8)
    assert pixels.max() == 255  # 16 of 16


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"expected a table that ends in .csv or .parquet, found '.xlsx'"):
        check_table(tmp_path / "table.xlsx")
