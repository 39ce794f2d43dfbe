import pytest
import torch

import tpkd.geometry as geometry
from strategies import INTEGER_TYPES, labels_of_type, make_pairs

PAIR_FUNCTIONS = [
    geometry.directions,
    geometry.conditional_loss,
    geometry.imitation_loss,
    geometry.clipped_teacher,
    geometry.imitation_direction,
    lambda z, zt, y: geometry.named_direction("tpkd", z, zt, y),
]
GOOD = (torch.zeros(2, 4), torch.zeros(2, 4), torch.tensor([0, 3]))

BAD_PAIRS = {
    "integer student": ((torch.zeros(2, 4, dtype=torch.long), GOOD[1], GOOD[2]), r"student_logits: .*got torch.int64"),
    "integer teacher": ((GOOD[0], torch.zeros(2, 4, dtype=torch.int32), GOOD[2]), r"teacher_logits: .*got torch.int32"),
    "array": (([[0.0, 1.0, 2.0]], GOOD[1], GOOD[2]), r"student_logits: expected a torch.Tensor.* got list"),
    "shapes": ((GOOD[0], torch.zeros(2, 5), GOOD[2]), r"teacher_logits: expected the shape .*\(2, 4\), got \(2, 5\)"),
    "two classes": (
        (torch.zeros(2, 2), torch.zeros(2, 2), torch.tensor([0, 1])),
        r"at least 3 classes, got 2; with two",
    ),
    "scalar": ((torch.tensor(1.0), torch.tensor(1.0), torch.tensor(0)), r"student_logits: .*got a scalar"),
    "label shape": ((GOOD[0], GOOD[1], torch.tensor([0])), r"labels: expected shape \(2,\), got \(1,\)"),
    "smoothed labels": (
        (GOOD[0], GOOD[1], torch.full((2, 4), 0.25)),
        r"labels: expected at least 2 classes outside .* got 0 at row 0; label smoothing",
    ),
    "soft labels of another shape": (
        (GOOD[0], GOOD[1], torch.tensor([0.0, 1.0])),
        r"labels: expected probabilities of the shape of the logits \(2, 4\), got .* for classes pass labels.long",
    ),
    "negative shares": (
        (GOOD[0], GOOD[1], torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.5, -0.5, 0.0, 0.0]])),
        r"labels: expected probabilities, nonnegative with sum 1, got .* least entry -0.5 and sum 1 at row 1",
    ),
    "shares that do not sum to one": (
        (GOOD[0], GOOD[1], torch.tensor([[0.5, 0.4, 0.0, 0.0]] * 2)),
        r"labels: expected probabilities, nonnegative with sum 1, got .* sum 0.9 at row 0",
    ),
    "bool labels": ((GOOD[0], GOOD[1], torch.tensor([True, False])), r"labels: .*torch.bool"),
    "label too large": ((GOOD[0], GOOD[1], torch.tensor([0, 4])), r"labels: .*from 0 to 3, got 4 at position \(1,\)"),
    "negative label": (
        (GOOD[0], GOOD[1], torch.tensor([-100, 1])),
        r"labels: .*from 0 to 3, got -100 at position \(0,\)",
    ),
}


@pytest.mark.parametrize("case", BAD_PAIRS)
@pytest.mark.parametrize("function", PAIR_FUNCTIONS)
def test_bad_pairs_are_refused_by_name(function, case):
    arguments, message = BAD_PAIRS[case]
    with pytest.raises(ValueError, match=message):
        function(*arguments)


@pytest.mark.parametrize(
    "function",
    [geometry.split, geometry.margins, geometry.label_loss, geometry.project_safe_cone, geometry.in_safe_cone],
)
def test_bad_single_inputs_are_refused_by_name(function):
    with pytest.raises(ValueError, match="at least 3 classes, got 2"):
        function(torch.zeros(1, 2), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"labels: expected shape \(1,\), got \(2,\)"):
        function(torch.zeros(1, 3), torch.tensor([0, 1]))


def test_batch_shapes_of_any_rank():
    student, teacher = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    labels = torch.randint(5, (2, 3, 4))
    whole = geometry.directions(student, teacher, labels)
    assert torch.equal(whole.update[1, 2], geometry.directions(student[1, 2], teacher[1, 2], labels[1, 2]).update)
    single = geometry.directions(student[0, 0, 0], teacher[0, 0, 0], labels[0, 0, 0])
    assert single.update.shape == (5,)
    assert single.compensation.shape == ()


@pytest.mark.parametrize(
    "function",
    [
        *PAIR_FUNCTIONS,
        lambda z, zt, y: geometry.margins(z, y),
        lambda z, zt, y: geometry.confidence_axis(y, z.shape[-1]),
    ],
)
def test_labels_mean_the_same_in_every_integer_type(function):
    for dtype in INTEGER_TYPES:
        for num_classes in (3, 128, 256, 40_000 if dtype.itemsize == 2 else 300):
            student, teacher, _ = make_pairs("random", 5, num_classes, seed=1)
            labels = labels_of_type(dtype, 5, num_classes)
            results = [function(student, teacher, each) for each in (labels, labels.long())]
            found, expected = ([each] if isinstance(each, torch.Tensor) else vars(each).values() for each in results)
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)), (dtype, num_classes)


def test_labels_that_no_int64_holds_are_refused():
    labels = torch.tensor([0, 2**64 - 1], dtype=torch.uint64)
    with pytest.raises(ValueError, match=rf"labels: expected .* from 0 to 3, got {2**64 - 1} at position \(1,\)"):
        geometry.margins(torch.zeros(2, 4), labels)


def test_what_else_is_refused_by_name():
    logits, labels = torch.zeros(2, 4), torch.tensor([0, 3])
    with pytest.raises(
        ValueError, match=r"candidate_logits: expected the shape of reference_logits \(2, 4\), got \(3, 4\)"
    ):
        geometry.in_safe_set(torch.zeros(3, 4), logits, labels)
    with pytest.raises(ValueError, match=r"weights: expected 3 on the last axis, got shape \(4,\)"):
        geometry.weighted_label_loss(logits, labels, torch.ones(4))
    with pytest.raises(ValueError, match="weights: expected nonnegative"):
        geometry.weighted_label_loss(logits, labels, torch.full((3,), torch.nan))
    with pytest.raises(ValueError, match=r"labels: .*from 0 to 3, got 4"):
        geometry.confidence_axis(torch.tensor([4]), 4)
    with pytest.raises(ValueError, match=r"num_classes: expected a whole number of at least 3, got 3.5"):
        geometry.retention_bound(3.5)
