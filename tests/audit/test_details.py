"""The numbers of single examples are those of the theory."""

import numpy as np
import pytest
import torch

import tpkd
from tpkd.audit.details import (
    CLASS_FIELDS,
    FRONTIER_POINTS,
    SCALARS,
    SHOWN_CLASSES,
    detail_columns,
    index_columns,
    least_margin,
    teacher_columns,
)
from tpkd.diagnosis.block import diagnose_block

ROWS, CLASSES = 40, 12


@pytest.fixture(scope="module")
def block():
    generator = torch.Generator().manual_seed(0)
    z, zt = (torch.randn(2, ROWS, CLASSES, generator=generator, dtype=torch.float64) * 2).unbind()
    labels = torch.randint(CLASSES, (ROWS,), generator=generator)
    return diagnose_block(torch.arange(ROWS), z, zt, labels, beta=0.5, temperature=1.0)


@pytest.fixture(scope="module")
def details(block):
    return detail_columns(block, beta=0.5)


def test_scalars_are_those_of_the_diagnosis(block, details):
    state = tpkd.diagnose(block.student, block.teacher, block.labels)
    for place, name in enumerate(SCALARS):
        if not name.endswith("margin"):
            np.testing.assert_array_equal(details["scalars"][:, place], getattr(state, name))


def test_the_least_margin_is_the_lead_over_the_nearest_competitor(block, details):
    for row in range(ROWS):
        label = int(block.labels[row])
        for name, logits in (("margin", block.student), ("teacher_margin", block.teacher)):
            others = [logits[row, label] - logits[row, other] for other in range(CLASSES) if other != label]
            assert details["scalars"][row, SCALARS.index(name)] == min(others)
    assert (least_margin(block.student, block.labels) > 0).equal(block.student.argmax(-1) == block.labels)


def test_the_label_comes_first_and_every_class_once(block, details):
    assert details["classes"].shape == (ROWS, SHOWN_CLASSES)
    np.testing.assert_array_equal(details["classes"][:, 0], block.labels)
    assert all(len(set(row)) == SHOWN_CLASSES for row in details["classes"].tolist())


def test_the_class_that_sets_the_price_is_shown(details):
    ratios = details["fields"][:, CLASS_FIELDS.index("log_ratio")]
    np.testing.assert_array_equal(ratios.max(-1), details["scalars"][:, SCALARS.index("transfer_cost")])


def test_the_most_probable_classes_of_both_are_shown(block, details):
    for row in range(ROWS):
        shown = set(details["classes"][row].tolist())
        assert {int(block.student[row].argmax()), int(block.teacher[row].argmax())} <= shown


def test_fields_are_those_of_the_theory(block, details):
    step = tpkd.directions(block.student, block.teacher, block.labels, beta=0.5)
    wide = {
        "log_student": block.student.log_softmax(-1),
        "log_teacher": block.teacher.log_softmax(-1),
        "conditional": step.conditional,
        "safe": step.safe,
        "clipped": step.clipped_mass,
        "update": step.update,
    }
    classes = torch.from_numpy(details["classes"].astype(np.int64))
    for name, values in wide.items():
        found = details["fields"][:, CLASS_FIELDS.index(name)]
        np.testing.assert_array_equal(found, values.gather(-1, classes))


def test_shares_are_the_conditional_distributions(block, details):
    probabilities = block.student.softmax(-1)
    for row in range(ROWS):
        label = int(block.labels[row])
        for place, index in enumerate(details["classes"][row].tolist()):
            share = details["fields"][row, CLASS_FIELDS.index("student_share"), place]
            expected = 0 if index == label else probabilities[row, index] / (1 - probabilities[row, label])
            assert share == pytest.approx(float(expected), rel=1e-9)


def test_the_frontier_runs_from_all_that_is_left_to_nothing_at_the_price(block, details):
    left, price = (details["scalars"][:, SCALARS.index(name)] for name in ("conditional_loss", "transfer_cost"))
    np.testing.assert_allclose(details["frontier"][:, 0], left, rtol=1e-9)
    np.testing.assert_array_equal(details["frontier"][:, -1], 0)
    middle, share = FRONTIER_POINTS // 2, (FRONTIER_POINTS // 2 / (FRONTIER_POINTS - 1)) ** 2
    point = tpkd.frontier(block.student, block.teacher, block.labels, torch.from_numpy(share * price))
    np.testing.assert_allclose(details["frontier"][:, middle], point.value, rtol=1e-9)


def test_the_index_is_the_same_in_single_precision(block, details):
    index = index_columns(block)
    for name in ("confidence", "conditional_loss", "transfer_cost", "imitation_loss", "margin"):
        np.testing.assert_array_equal(index[name], details["scalars"][:, SCALARS.index(name)].astype(np.float32))
    np.testing.assert_array_equal(index["answer"], block.student.argmax(-1))
    np.testing.assert_array_equal(index["blocked"], block.state.blocked)
    np.testing.assert_array_equal(teacher_columns(block)["teacher_answer"], block.teacher.argmax(-1))


def test_three_classes_are_all_shown():
    z, zt, labels = torch.zeros(1, 3).double(), torch.tensor([[0.0, 1.0, 2.0]]).double(), torch.tensor([1])
    details = detail_columns(diagnose_block(torch.arange(1), z, zt, labels, beta=0.5, temperature=1.0), beta=0.5)
    assert sorted(details["classes"][0].tolist()) == [0, 1, 2]
