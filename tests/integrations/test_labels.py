"""Labels as hosts give them: which positions count, and what the first batch shows on any device."""

import pytest
import torch

from strategies import INTEGER_TYPES, labels_of_type
from tpkd.errors import InputError
from tpkd.integrations import labels as subject
from tpkd.integrations.labels import FirstLook, check_kept_labels, valid_positions
from tpkd.objectives import create
from tpkd.teacher.cache.truncation import truncate


def test_positions_count_unless_they_are_ignored_in_any_type():
    for dtype in INTEGER_TYPES:
        classes = labels_of_type(dtype, 5, 300)
        assert valid_positions(classes).equal(classes.long() != -100), dtype
    soft = torch.tensor([[0.3, 0.7, 0.0], [0.0, 0.0, 0.0]])
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert valid_positions(soft.to(dtype)).tolist() == [True, False]
    assert valid_positions(soft.T.unsqueeze(0), class_axis=1).tolist() == [[True, False]]


@pytest.fixture
def accelerator(monkeypatch):
    """As where looking at values would stall."""
    monkeypatch.setattr(subject, "can_read_values", lambda tensor: False)


def test_soft_labels_are_looked_at_once_for_each_objective():
    look, student = FirstLook(), torch.zeros(2, 4)
    wrong, right = torch.ones(2, 4), torch.tensor([[0.5, 0.5, 0, 0], [0, 0, 0, 0]])
    with pytest.raises(ValueError, match=r"expected probabilities.*sum 4 at row 0"):
        look(create("tpkd"), student, wrong)
    look = FirstLook()
    look(create("tpkd"), student, right)
    look(create("tpkd"), student, wrong)  # left to the loss, where that looks
    with pytest.raises(ValueError, match="expected probabilities"):
        look(create("ce"), student, wrong)


def test_a_row_that_leaves_nothing_is_named_by_its_own_number():
    look, student = FirstLook(), torch.zeros(3, 4)
    labels = torch.tensor([[0, 0, 0, 0], [1.0, 0, 0, 0], [0.5, 0.3, 0.2, 0]])
    with pytest.raises(ValueError, match="at least 2 classes outside the support of each row, got 1 at row 2"):
        look(create("tpkd"), student, labels)
    FirstLook()(create("kd"), student, labels)


def test_classes_may_stand_on_another_axis():
    labels = torch.tensor([[0.5, 0.5, 0, 0], [0, 0, 0.2, 0.8]]).T.unsqueeze(0)
    FirstLook()(create("tpkd"), torch.zeros(1, 4, 2), labels, class_axis=1)
    with pytest.raises(ValueError, match="expected probabilities"):
        FirstLook()(create("tpkd"), torch.zeros(1, 4, 2), labels)


def kept_answers(dtype=torch.float16):
    """Answers as a cache keeps them, rounded; every label stands at another place among the classes."""
    logits = 3 * torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(64) % 10
    rounded = truncate(logits, labels, 3).map(lambda each: each.to(dtype).float() if each.is_floating_point() else each)
    return rounded, labels


def test_the_labels_of_a_cache_are_taken():
    for dtype in (torch.float16, torch.float32):
        answers, labels = kept_answers(dtype)
        among = (answers.indices == labels.unsqueeze(-1)).any(-1)
        assert 0 < among.sum() < 64
        check_kept_labels(answers, labels)


def test_other_labels_than_those_of_a_cache_are_refused_unless_ignored():
    answers, labels = kept_answers()
    hidden = int((answers.indices != labels.unsqueeze(-1)).all(-1).int().argmax())
    likeliest = int((answers.indices[:, 0] == labels).int().argmax())
    left_out = next(each for each in range(10) if each not in answers.indices[likeliest])
    for row, other in ((hidden, int(answers.indices[hidden, 0])), (likeliest, left_out)):
        changed = labels.clone()
        changed[row] = other
        with pytest.raises(
            InputError, match=rf"labels: .*got class {other} in row {row}, .*build the cache with these"
        ):
            check_kept_labels(answers, changed)
        changed[row] = -100
        check_kept_labels(answers, changed)


def test_on_an_accelerator_the_first_labels_of_a_truncated_teacher_are_compared(accelerator):
    answers, labels = kept_answers()
    look, student, other = FirstLook(), torch.zeros(64, 10), labels.flip(0)
    look(create("tpkd"), student, labels, answers)
    look(create("tpkd"), student, other, answers)
    with pytest.raises(InputError, match="expected those that the teacher cache was built with"):
        FirstLook()(create("tpkd"), student, other, answers)


def test_elsewhere_those_of_every_batch_are():
    answers, labels = kept_answers()
    look, student = FirstLook(), torch.zeros(64, 10)
    look(create("tpkd"), student, labels, answers)
    with pytest.raises(InputError, match="expected those that the teacher cache was built with"):
        look(create("tpkd"), student, labels.flip(0), answers)
