"""What is said about a teacher's accuracy."""

import numpy as np

from competence.cases import diagnosed
from tpkd.competence.reading import competence_sentences


def test_few_examples_cannot_tell(tmp_path):
    y = np.array([0, 1, 2])
    found = diagnosed(tmp_path, np.eye(3)[y] * 3, np.eye(3)[y] * 4, y)
    assert found.teacher_accuracy == 1
    assert found.near_chance
    assert "3 examples are too few" in " ".join(competence_sentences(found))


def test_a_teacher_below_its_student_is_said(tmp_path):
    rng = np.random.default_rng(2)
    y = rng.integers(0, 5, 400)
    right = np.eye(5)[y]
    teacher = 1.2 * right + rng.normal(size=(400, 5))
    found = diagnosed(tmp_path, 9 * right + rng.normal(size=(400, 5)), teacher, y)
    assert not found.near_chance
    assert "The teacher is right less often than the student" in " ".join(competence_sentences(found))
    turned = diagnosed(tmp_path, teacher, 9 * right + rng.normal(size=(400, 5)), y)
    assert "less often" not in " ".join(competence_sentences(turned))
