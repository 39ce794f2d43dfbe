"""Whether a teacher knows anything of its labels: the rule, what is counted, and what a diagnosis says of it."""

import numpy as np
import pytest
import torch
from scipy.stats import binom

from competence.cases import diagnosed
from diagnosis.files_of import make_arrays
from tpkd.competence.counts import LEVEL, AnswerCounts, near_chance
from tpkd.competence.reading import competence_sentences


@pytest.mark.parametrize("examples", [1, 2, 5, 20, 200, 5000])
@pytest.mark.parametrize("chance", [0.001, 0.02, 0.13, 0.5, 0.9])
def test_what_passes_as_knowledge_is_not_luck_by_the_exact_binomial(examples, chance):
    """The bound is never below the exact tail, and hardly above it, so that no good teacher is doubted."""
    least = next((right for right in range(examples + 1) if not near_chance(right, examples, chance)), None)
    if least is None:
        assert chance**examples > LEVEL  # even all right would be luck
        return
    assert binom.sf(least - 1, examples, chance) <= LEVEL
    assert all(not near_chance(right, examples, chance) for right in range(least, examples + 1))
    # at a level of 0.01 a geometric series exceeds the tail of a normal distribution by less than a quarter
    assert binom.sf(least - 2, examples, chance) >= LEVEL / 2


def test_the_ends_of_the_rule():
    assert near_chance(10, 10, 1.0)  # one class alone: nothing can be told
    assert near_chance(0, 10, 0.1)
    assert not near_chance(10, 10, 0.1)
    assert near_chance(1, 1, 0.5)
    with pytest.raises(ValueError, match="examples: expected at least 1, got 0"):
        near_chance(0, 0, 0.5)


def test_counts_do_not_depend_on_blocks_and_know_ties_and_absent_students():
    rng = np.random.default_rng(0)
    teacher, student = (torch.from_numpy(rng.normal(size=(50, 4))) for _ in range(2))
    labels = torch.from_numpy(rng.integers(0, 4, 50))
    whole, parts, alone = AnswerCounts(4), AnswerCounts(4), AnswerCounts(4)
    whole.add(teacher, labels, student)
    for block in torch.arange(50).split(7):
        parts.add(teacher[block], labels[block], student[block])
    alone.add(teacher, labels)
    found = whole.finish()
    assert found == parts.finish()
    assert found.teacher_accuracy == np.mean(teacher.numpy().argmax(-1) == labels.numpy())
    assert found.student_accuracy == np.mean(student.numpy().argmax(-1) == labels.numpy())
    assert found.agreement == np.mean(student.numpy().argmax(-1) == teacher.numpy().argmax(-1))
    assert found.chance == np.bincount(labels).max() / 50
    assert (alone.finish().student_accuracy, alone.finish().agreement) == (None, None)


def test_the_most_probable_classes_count_as_the_logits_do():
    rng = np.random.default_rng(1)
    teacher, student = (torch.from_numpy(rng.normal(size=(50, 4))) for _ in range(2))
    labels = torch.from_numpy(rng.integers(0, 4, 50))
    from_logits, from_classes = AnswerCounts(4), AnswerCounts(4)
    from_logits.add(teacher, labels, student)
    from_classes.add_classes(teacher.argmax(-1), labels, student.argmax(-1))
    assert from_logits.finish() == from_classes.finish()


def test_a_teacher_that_knows_its_labels_is_not_doubted(tmp_path):
    z, zt, y = make_arrays(examples=300, num_classes=6)
    found = diagnosed(tmp_path, z, zt + 2 * np.eye(6, dtype=np.float32)[y], y)
    assert found.examples == 300
    assert not found.near_chance
    assert found.teacher_accuracy > found.chance


@pytest.mark.parametrize("change", ["columns", "rows", "constant", "random"])
def test_permuted_columns_and_shuffled_rows_are_near_chance(tmp_path, change):
    z, zt, y = make_arrays(examples=600, num_classes=6)
    good = zt + 6 * np.eye(6, dtype=np.float32)[y]
    rng = np.random.default_rng(1)
    teacher = {
        "columns": good[:, [1, 2, 3, 4, 5, 0]],
        "rows": good[rng.permutation(600)],
        "constant": np.zeros_like(good),
        "random": rng.normal(size=good.shape),
    }[change]
    found = diagnosed(tmp_path, z, teacher, y)
    assert found.near_chance
    assert found.student_accuracy > found.teacher_accuracy
    said = " ".join(competence_sentences(found))
    assert "is not clearly more often than" in said
    assert "the order of its classes or of its rows" in said
