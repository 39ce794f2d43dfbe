"""Labels as classes, masks or probabilities: one meaning, and for a set of one class one result, to the bit."""

import dataclasses

import pytest
import torch

import tpkd.geometry as geometry
from strategies import all_kinds, make_sets, one_hot
from tpkd.geometry.correct import (
    as_wide,
    check_correct,
    correct_mask,
    drop_target,
    insert_target,
    largest_correct,
    least_correct,
    num_correct,
    one_class,
    over_batch,
)
from tpkd.geometry.directions import DIRECTION_NAMES

WITHOUT_WEIGHTS = {
    "margins": lambda z, zt, y: geometry.margins(z, y),
    "margin_gain": lambda z, zt, y: geometry.margin_gain(z, y, 0.3),
    "in_safe_set": lambda z, zt, y: geometry.in_safe_set(zt, z, y),
    "in_safe_set of a step": lambda z, zt, y: geometry.in_safe_set(z - geometry.project_safe_cone(zt, y), z, y),
    "in_safe_cone": lambda z, zt, y: geometry.in_safe_cone(z, y),
    "in_conditional_plane": lambda z, zt, y: geometry.in_conditional_plane(z, y),
    "project_safe_cone": lambda z, zt, y: geometry.project_safe_cone(z - zt, y),
    "confidence_axis": lambda z, zt, y: geometry.confidence_axis(y, z.shape[-1]),
    "split": lambda z, zt, y: geometry.split(z, y),
    "conditional_loss": geometry.conditional_loss,
    "imitation_loss": geometry.imitation_loss,
    "imitation_direction": geometry.imitation_direction,
    "weighted_label_loss": lambda z, zt, y: geometry.weighted_label_loss(z, y, torch.rand(z.shape[-1] - 1).to(z)),
}
WITH_WEIGHTS = {
    "label_loss": lambda z, zt, y: geometry.label_loss(z, y),
    "directions": geometry.directions,
    "clipped_teacher": geometry.clipped_teacher,
    "normalized_clipped_teacher": geometry.normalized_clipped_teacher,
    **{
        name: lambda z, zt, y, name=name: geometry.named_direction(name, z, zt, y, temperature=3.0)
        for name in DIRECTION_NAMES
    },
}
STATEMENTS = WITHOUT_WEIGHTS | WITH_WEIGHTS


def fields(result):
    if isinstance(result, torch.Tensor):
        return {"value": result}
    return {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}


def outside(value, labels, num_classes):
    """What is K wide for sets, in the K-1 places of labels."""
    return drop_target(value, labels) if value.ndim == 2 and value.shape[-1] == num_classes else value


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_classes", [3, 10, 200])
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_set_of_one_class_has_the_bits_of_its_label(name, num_classes, dtype):
    student, teacher, labels = all_kinds(200, num_classes, seed=3, dtype=dtype)
    forms = [one_hot(labels, num_classes, dtype)]
    if name in WITHOUT_WEIGHTS:
        forms.append(forms[0] > 0)
    torch.manual_seed(0)
    expected = fields(STATEMENTS[name](student, teacher, labels))
    for form in forms:
        torch.manual_seed(0)
        found = fields(STATEMENTS[name](student, teacher, form))
        for field, value in expected.items():
            given = found[field]
            if given.shape != value.shape:
                given = outside(given, labels, num_classes)
            assert torch.equal(given, value), field


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_a_bare_set_does_not_say_how_much_its_classes_weigh(name):
    student, teacher, labels = make_sets("random", 3, 6, 2, seed=0)
    with pytest.raises(ValueError, match=r"labels: .* got a mask of correct classes.*pass mask / mask.sum"):
        STATEMENTS[name](student, teacher, labels > 0)


def test_dropping_and_inserting_are_inverse():
    values = torch.arange(12.0).reshape(2, 6)
    mask = torch.tensor([[False, True, False, False, True, False], [True, False, False, False, False, False]])
    others = drop_target(values, mask, fill=-1.0)
    assert others.tolist() == [[0.0, 2.0, 3.0, 5.0, -1.0], [7.0, 8.0, 9.0, 10.0, 11.0]]
    back = insert_target(others, torch.tensor([100.0, 200.0]), mask)
    assert back.tolist() == [[0.0, 100.0, 2.0, 3.0, 100.0, 5.0], [200.0, 7.0, 8.0, 9.0, 10.0, 11.0]]
    assert torch.equal(as_wide(others, mask, 0.0), values.masked_fill(mask, 0.0))
    assert torch.equal(as_wide(others, torch.tensor([0, 1]), 0.0), others)


def test_the_correct_coordinates():
    values = torch.tensor([[3.0, 1.0, 2.0, 9.0]])
    mask = torch.tensor([[True, True, False, False]])
    assert least_correct(values, mask).tolist() == [1.0]
    assert largest_correct(values, mask).tolist() == [3.0]
    assert num_correct(mask).tolist() == [2]
    assert num_correct(torch.tensor([3])) == 1
    assert torch.equal(correct_mask(torch.tensor([[0.2, 0.8, 0.0, 0.0]]), 4), mask)
    assert over_batch(mask, torch.Size([5, 1])).shape == (5, 1, 4)
    assert over_batch(torch.tensor([3]), torch.Size([5, 1])).shape == (5, 1)


def test_probabilities_are_normalised_and_looked_at():
    found = check_correct(torch.tensor([[0.30003, 0.7, 0.0, 0.0]]), torch.Size([1, 4]), dtype=torch.float64)
    assert found.dtype == torch.float64
    assert found.sum().item() == pytest.approx(1, abs=1e-15)
    half = torch.tensor([[0.301, 0.7, 0.0, 0.0]], dtype=torch.bfloat16)
    assert check_correct(half, torch.Size([1, 4])).sum().item() == pytest.approx(1)
    with pytest.raises(ValueError, match=r"got a row with least entry 0 and sum 1\.001"):
        check_correct(torch.tensor([[0.301, 0.7, 0.0, 0.0]]), torch.Size([1, 4]))
    with pytest.raises(ValueError, match=r"got a row with least entry 0 and sum 0 at position \(0, 1\)"):
        check_correct(torch.tensor([[[0.5, 0.5, 0.0, 0.0], [0.0] * 4]]), torch.Size([1, 2, 4]))
    with pytest.raises(ValueError, match="expected at least one correct class, got none at row 1"):
        check_correct(torch.tensor([[True, False, False], [False] * 3]), torch.Size([2, 3]), masks=True)
    with pytest.raises(ValueError, match="expected at least 2 classes outside the support of each row, got 1 at row 0"):
        check_correct(torch.tensor([[True, True, False]]), torch.Size([1, 3]), masks=True)


def test_one_class_takes_every_form_of_one_class_and_refuses_several_by_name():
    labels, shape = torch.tensor([2, 0], dtype=torch.uint8), torch.Size([2, 4])
    for form in (labels, one_hot(labels.long(), 4), one_hot(labels.long(), 4) > 0):
        found = one_class("it", form, shape)
        assert found.dtype == torch.int64
        assert found.tolist() == [2, 0]
    soft = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    with pytest.raises(ValueError, match="labels: it is stated for one correct class, got 2 correct classes at row 1"):
        one_class("it", soft, shape)
    with pytest.raises(ValueError, match="weighted_label_loss is stated for one correct class"):
        geometry.weighted_label_loss(torch.zeros(2, 4), soft, torch.ones(3))


def test_every_pair_of_a_set_counts_in_the_safe_set():
    """The least margin rises while that of another correct class falls."""
    before, after = torch.tensor([[0.0, 5.0, 1.0, 0.0]]), torch.tensor([[0.5, 1.5, 1.0, 0.0]])
    mask = torch.tensor([[True, True, False, False]])
    assert (geometry.margins(after, mask) >= geometry.margins(before, mask)).all()
    assert not geometry.in_safe_set(after, before, mask).any()
    assert geometry.in_safe_set(before + torch.tensor([0.1, 0.2, 0.0, -1.0]), before, mask).all()


def test_join_is_the_inverse_of_split_for_sets():
    student, _, labels = make_sets("random", 50, 8, 3, seed=1)
    parts = geometry.split(student, labels)
    inside = student.masked_fill(labels == 0, -torch.inf).log_softmax(-1)
    joined = geometry.join(parts.log_odds, parts.log_conditional, labels, inside)
    torch.testing.assert_close(joined, student.log_softmax(-1), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="log_inside: expected the shares of the correct classes among themselves"):
        geometry.join(parts.log_odds, parts.log_conditional, labels)
