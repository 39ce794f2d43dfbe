"""Several teachers as one: the averages are those of a loop over probabilities, and what justifies them holds."""

import numpy as np
import pytest
import torch

from strategies import make_pairs
from tolerances import EXACT
from tpkd.geometry import average_conditionals, average_probabilities, conditional_loss, directions, imitation_loss
from tpkd.geometry.averaging import shares_of

WEIGHTS = (3.0, 1.0, 0.5)
SHARES = np.array(WEIGHTS) / 4.5
TEMPERATURES = (0.5, 1.0, 4.0)
EXACTLY = {"rtol": 0, "atol": EXACT[torch.float64]}


def make_teachers(rows=30, classes=7):
    """A student, three teachers and labels; the second teacher is nearly certain, and the third much louder."""
    student, first, labels = make_pairs("random", rows, classes, seed=3)
    _, second, _ = make_pairs("random", rows, classes, seed=4)
    second = second + 30 * torch.nn.functional.one_hot(labels, classes)
    _, third, _ = make_pairs("random", rows, classes, seed=5)
    return student, [first, second, 5 * third], labels


def set_labels(labels, classes=7):
    """Soft labels of one, two or three classes."""
    shares = torch.nn.functional.one_hot(labels, classes).double()
    shares[10:] += torch.nn.functional.one_hot((labels[10:] + 1) % classes, classes)
    shares[20:] += torch.nn.functional.one_hot((labels[20:] + 2) % classes, classes)
    return shares / shares.sum(-1, keepdim=True)


def softmax(values):
    exponentials = np.exp(values - values.max())
    return exponentials / exponentials.sum()


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_softmax_at_the_temperature_is_the_averaged_distribution(temperature):
    _, teachers, _ = make_teachers()
    found = average_probabilities(teachers, weights=WEIGHTS, temperature=temperature)
    for row, logits in enumerate(found.numpy()):
        parts = [softmax(teacher[row].numpy() / temperature) for teacher in teachers]
        np.testing.assert_allclose(softmax(logits / temperature), SHARES @ np.array(parts), **EXACTLY)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("soft", [False, True])
def test_outside_the_correct_classes_it_is_the_averaged_conditional_and_in_them_the_averaged_probability(
    temperature, soft
):
    _, teachers, labels = make_teachers()
    sets = set_labels(labels) > 0 if soft else torch.nn.functional.one_hot(labels, 7).bool()
    for given in (set_labels(labels), sets) if soft else (labels, labels.to(torch.uint8)):
        found = average_conditionals(teachers, given, weights=WEIGHTS, temperature=temperature)
        for row, logits in enumerate(found.numpy()):
            correct, z = sets[row].numpy(), [teacher[row].numpy() / temperature for teacher in teachers]
            conditionals = np.array([softmax(values[~correct]) for values in z])
            np.testing.assert_allclose(softmax(logits[~correct] / temperature), SHARES @ conditionals, **EXACTLY)
            probabilities = SHARES @ np.array([softmax(values) for values in z])
            np.testing.assert_allclose(softmax(logits / temperature)[correct], probabilities[correct], **EXACTLY)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("soft", [False, True])
def test_conditional_gradients_average_as_conditionals_do(temperature, soft):
    """u(sum pi q) = sum pi u(q)."""
    student, teachers, labels = make_teachers()
    given = set_labels(labels) if soft else labels
    average = average_conditionals(teachers, given, weights=WEIGHTS, temperature=temperature)
    parts = [directions(student, teacher, given, temperature=temperature).conditional for teacher in teachers]
    expected = sum(share * part for share, part in zip(SHARES.tolist(), parts, strict=True))
    found = directions(student, average, given, temperature=temperature).conditional
    torch.testing.assert_close(found, expected, **EXACTLY)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(("average", "loss"), [("conditionals", conditional_loss), ("probabilities", imitation_loss)])
def test_the_weighted_divergences_are_that_of_the_average_and_a_constant(average, loss, temperature):
    """sum pi KL(q_m || r) - KL(q || r) is the same number for every student: the teachers' own disagreement."""
    student, teachers, labels = make_teachers()
    joined = (
        average_conditionals(teachers, labels, weights=WEIGHTS, temperature=temperature)
        if average == "conditionals"
        else average_probabilities(teachers, weights=WEIGHTS, temperature=temperature)
    )
    constants = []
    for logits in (student, torch.zeros_like(student), joined):
        losses = [loss(logits, teacher, labels, temperature=temperature) for teacher in teachers]
        whole = sum(share * value for share, value in zip(SHARES.tolist(), losses, strict=True))
        constants.append(whole - loss(logits, joined, labels, temperature=temperature))
    scale = max(1.0, constants[0].max().item())  # T^2 KL grows with the temperature
    for other in constants[1:]:
        torch.testing.assert_close(other, constants[0], rtol=0, atol=EXACT[torch.float64] * scale)
    assert (constants[0] > 0.01).any()


def test_one_teacher_stays_as_it_is_and_equal_ones_are_one():
    _, (teacher, *_), labels = make_teachers()
    for average in (average_probabilities, lambda logits, **more: average_conditionals(logits, labels, **more)):
        assert average([teacher], weights=[7.0], temperature=3.0).equal(teacher)
        both = average([teacher, teacher], weights=[1.0, 2.0], temperature=3.0)
        torch.testing.assert_close((both / 3).softmax(-1), (teacher / 3).softmax(-1), **EXACTLY)


def test_a_certain_teacher_is_heard_among_conditionals_and_not_among_probabilities():
    """The worked number of the page: a teacher that leaves 2 % to incorrect classes, and one that leaves half."""
    sure, unsure = torch.tensor([[0.98, 0.002, 0.018]]).log(), torch.tensor([[0.5, 0.4, 0.1]]).log()
    mixed = average_probabilities([sure, unsure])[:, 1:].softmax(-1)
    equal = average_conditionals([sure, unsure], torch.tensor([0]))[:, 1:].softmax(-1)
    torch.testing.assert_close(mixed, torch.tensor([[0.402 / 0.52, 0.118 / 0.52]]))
    torch.testing.assert_close(equal, torch.tensor([[0.45, 0.55]]))


def test_an_extreme_lead_of_the_label_costs_the_conditional_no_digits():
    """In float32: beside a lead of a million no difference among incorrect classes would be left."""
    conditional = torch.tensor([0.0, 1.0, 2.0, 3.0])
    logits = torch.cat([torch.tensor([1e6]), conditional])[None]
    found = average_conditionals([logits, logits], torch.tensor([0]))
    torch.testing.assert_close(found[0, 1:].softmax(-1), conditional.softmax(-1))
    assert found.isfinite().all()


def test_a_row_without_a_correct_class_gets_averaged_probabilities():
    _, teachers, labels = make_teachers()
    expected = average_probabilities(teachers)[:2]
    for ignored in (
        labels.index_fill(0, torch.tensor([0, 1]), -100),
        set_labels(labels).index_fill(0, torch.tensor([0, 1]), 0),
    ):
        found = average_conditionals(teachers, ignored)
        torch.testing.assert_close(found[:2], expected, **EXACTLY)
        assert found.isfinite().all()
    broken = [teacher.clone() for teacher in teachers]
    broken[1][0] = torch.nan  # what is ignored stays in its row
    found = average_conditionals(broken, labels.index_fill(0, torch.tensor([0]), -100))
    assert found[1:].equal(average_conditionals(teachers, labels)[1:])


def test_half_precision_is_computed_in_float32_and_no_gradient_flows():
    _, teachers, labels = make_teachers()
    half = [teacher.half().requires_grad_() for teacher in teachers]
    for found in (average_probabilities(half), average_conditionals(half, labels)):
        assert found.dtype == torch.float32
        assert not found.requires_grad


@pytest.mark.parametrize(
    ("arguments", "more", "message"),
    [
        (([],), {}, "teacher_logits: expected at least one teacher, got none"),
        (
            ([torch.zeros(2, 3), torch.zeros(2, 4)],),
            {},
            r"teacher_logits\[1\]: expected the shape of teacher_logits\[0\]",
        ),
        (([torch.zeros(2, 3, dtype=torch.int)],), {}, r"teacher_logits\[0\]: expected floating-point logits"),
        (([torch.zeros(2, 3)] * 2,), {"weights": [1.0]}, "weights: expected one for each of 2 teachers, got 1"),
        (
            ([torch.zeros(2, 3)] * 2,),
            {"weights": [1.0, 0.0]},
            r"weights\[1\]: expected a positive finite number, got 0",
        ),
        (([torch.zeros(2, 3)] * 2,), {"temperature": 0.0}, "temperature: expected a positive finite number"),
    ],
)
def test_what_cannot_be_averaged_is_refused(arguments, more, message):
    with pytest.raises(ValueError, match=message):
        average_probabilities(*arguments, **more)
    with pytest.raises(ValueError, match=message):
        average_conditionals(*arguments, torch.tensor([0, 1]), **more)


def test_labels_that_do_not_fit_are_refused():
    teachers = [torch.zeros(2, 3)] * 2
    with pytest.raises(ValueError, match="labels: expected class indices from 0 to 2 or ignore_index=-100, got 3"):
        average_conditionals(teachers, torch.tensor([0, 3]))
    with pytest.raises(ValueError, match=r"labels: expected the shape of teacher_logits \(2, 3\), got \(2, 4\)"):
        average_conditionals(teachers, torch.eye(2, 4))
    with pytest.raises(ValueError, match="at least 3 classes"):
        average_conditionals([torch.zeros(2, 2)] * 2, torch.tensor([0, 1]))
    assert average_probabilities([torch.zeros(2, 2)] * 2).shape == (2, 2)


def test_weights_sum_to_one():
    assert shares_of([1e308, 1e308], 2) == [0.5, 0.5]
    assert shares_of([1, 3], 2) == [0.25, 0.75]
