"""Several teachers: what every objective learns from them, and which ones refuse them."""

import pytest
import torch

from objectives.cases import make_inputs
from tolerances import EXACT
from tpkd import project_safe_cone
from tpkd.objectives import create, names

WEIGHTS = (3.0, 1.0)
SHARES = (0.75, 0.25)
EXACTLY = {"rtol": 0, "atol": EXACT[torch.float64]}
AVERAGES = {
    **dict.fromkeys(("kd", "kl-dist", "dkd", "dp-u", "dp-s", "xe-kl", "dto-kd", "safe-full-kl"), "probabilities"),
    **dict.fromkeys(("tpkd", "tpkd-no-ce", "tpkd-no-projection", "compensation-only"), "conditionals"),
    **dict.fromkeys(("ce", "dhkd"), None),
}
LINEAR = ("kd", "kl-dist", "xe-kl", "tpkd-no-projection")
"""Their gradient is affine in what is averaged, so that it is the average of the gradients."""


def two_teachers():
    inputs = make_inputs()
    other = make_inputs(seed=9).teacher * 3
    return inputs, [inputs.teacher, other]


def gradient(objective, inputs, teacher, labels=None):
    student = inputs.student.detach().clone().requires_grad_()
    more = {"initial_logits": inputs.initial} if "initial_logits" in objective.needs else {}
    loss = objective(student, teacher, inputs.labels if labels is None else labels, reduction="sum", **more)
    loss.backward()
    return loss.detach(), student.grad


def test_every_objective_of_ours_says_what_it_averages():
    assert {name: create(name).teacher_average for name in AVERAGES} == AVERAGES
    assert AVERAGES.keys() == {name for name in names() if type(create(name)).__module__.startswith("tpkd.")}


@pytest.mark.parametrize("name", [name for name, average in AVERAGES.items() if average and name != "dto-kd"])
def test_two_equal_teachers_are_one_at_the_temperature_of_the_objective(name):
    """A wrong temperature would show: the average at one T is another distribution at another."""
    for settings in ({}, {"temperature": 2.5}):
        objective = create(name, **settings)
        if objective.teacher_average is None:  # DP, which is tried with its defaults
            continue
        inputs, (teacher, _) = two_teachers()
        both = objective.average_teachers([teacher, teacher], inputs.labels)
        for found, expected in zip(
            gradient(objective, inputs, both), gradient(objective, inputs, teacher), strict=True
        ):
            torch.testing.assert_close(found, expected, rtol=EXACT[torch.float64], atol=EXACT[torch.float64])


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("temperature", [1.0, 4.0])
@pytest.mark.parametrize("soft", [False, True])
def test_the_gradient_is_the_weighted_mean_of_the_gradients(name, temperature, soft):
    inputs, teachers = two_teachers()
    objective = create(name, temperature=temperature)
    labels = torch.nn.functional.one_hot(inputs.labels, 5).double()
    labels = (labels + labels.roll(1, -1)) / 2 if soft else inputs.labels
    average = objective.average_teachers(teachers, labels, WEIGHTS)
    parts = [gradient(objective, inputs, teacher, labels)[1] for teacher in teachers]
    expected = sum(share * part for share, part in zip(SHARES, parts, strict=True))
    torch.testing.assert_close(gradient(objective, inputs, average, labels)[1], expected, **EXACTLY)


def test_tpkd_projects_the_average_and_does_not_average_projections():
    inputs, teachers = two_teachers()
    unprotected, tpkd = create("tpkd-no-projection"), create("tpkd")
    average = tpkd.average_teachers(teachers, inputs.labels, WEIGHTS)
    found = gradient(tpkd, inputs, average)[1]
    parts = [gradient(tpkd, inputs, teacher)[1] for teacher in teachers]
    assert not torch.allclose(found, SHARES[0] * parts[0] + SHARES[1] * parts[1], atol=1e-3)
    # Against the definition: the averaged conditional gradient, projected row by row.
    label = gradient(create("ce"), inputs, None)[1]
    mean = sum(
        share * (gradient(unprotected, inputs, teacher)[1] - label)
        for share, teacher in zip(SHARES, teachers, strict=True)
    )
    torch.testing.assert_close(found, label + project_safe_cone(mean, inputs.labels), **EXACTLY)


def test_positions_beyond_rows_and_ignored_ones():
    """Classes are on the second axis, as in every loss; an ignored position is finite."""
    generator = torch.Generator().manual_seed(0)
    teachers = [torch.randn(2, 5, 3, generator=generator, dtype=torch.float64) for _ in range(2)]
    labels = torch.tensor([[0, 1, -100], [4, 3, 2]])
    for objective in (create("tpkd", temperature=2.0), create("kd")):
        wide = objective.average_teachers(teachers, labels)
        rows = [teacher.movedim(1, -1).reshape(6, 5) for teacher in teachers]
        assert wide.movedim(1, -1).reshape(6, 5).equal(objective.average_teachers(rows, labels.reshape(6)))
        assert wide.isfinite().all()
        soft = torch.nn.functional.one_hot(labels.clamp(min=0), 5).double()
        soft[0, 2] = 0
        assert objective.average_teachers(teachers, soft.movedim(-1, 1)).equal(wide)


@pytest.mark.parametrize(
    ("name", "settings", "way_out"),
    [
        ("dhkd", {}, "use one teacher, or an objective that averages several, such as tpkd or kd"),
        ("dto-kd", {"layer_features": "own-objective"}, "set layer_features=none"),
        ("dp-u", {"temperature": 2.0}, "set temperature=1"),
    ],
)
def test_what_has_no_average_is_refused_with_the_way_out(name, settings, way_out):
    message = f"teacher_logits: objective '{name}' learns from one teacher, got several: {way_out}"
    with pytest.raises(ValueError, match=message):
        create(name, **settings).average_teachers([torch.zeros(1, 3)] * 2, torch.tensor([0]))


def test_conditionals_need_labels():
    with pytest.raises(ValueError, match="labels: objective 'tpkd' averages over incorrect classes, got None"):
        create("tpkd").average_teachers([torch.zeros(1, 3)] * 2, None)
