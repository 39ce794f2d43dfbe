"""A student and its teacher over the incorrect classes, whatever the teacher kept."""

import pytest
import torch

from strategies import make_pairs
from tpkd.geometry import TopK
from tpkd.geometry.teaching import check_teaching, conditional_logs, log_conditional


def test_a_whole_teacher_is_softened():
    student, teacher, labels = make_pairs("random", 20, 9, seed=1)
    for temperature in (0.5, 1.0, 4.0):
        log_r, log_q = conditional_logs(student, teacher, labels, temperature)
        for row, label in enumerate(labels.tolist()):
            others = [j for j in range(9) if j != label]
            torch.testing.assert_close(log_r[row], (student[row, others] / temperature).log_softmax(-1))
            torch.testing.assert_close(log_q[row], (teacher[row, others] / temperature).log_softmax(-1))


def test_a_set_leaves_empty_places_at_the_end():
    logits = torch.arange(5.0)
    found = log_conditional(logits, torch.tensor([True, False, True, False, False]), 1.0)
    expected = torch.tensor([1.0, 3.0, 4.0, -torch.inf]).log_softmax(-1)
    assert torch.equal(found, expected)


def test_inside_the_rest_teacher_and_student_are_proportional_at_every_temperature():
    student, teacher, labels = make_pairs("random", 20, 9, seed=2)
    log_probs = teacher.log_softmax(-1)
    top = log_probs.topk(3)
    at_label = labels.unsqueeze(-1)
    top_k = TopK(top.values, top.indices, log_probs.gather(-1, at_label).squeeze(-1))
    kept = torch.zeros_like(student).scatter(-1, top.indices, 1).scatter(-1, at_label, 1).bool()
    for temperature in (0.5, 1.0, 4.0):
        log_r, log_q = conditional_logs(student, top_k, labels, temperature)
        for row, label in enumerate(labels.tolist()):
            rest = [j for j in range(9) if not kept[row, j]]
            places = [j - (j > label) for j in rest]
            ratios = log_q[row, places] - log_r[row, places]
            torch.testing.assert_close(ratios, ratios[:1].expand_as(ratios))


def test_where_nothing_is_known_of_the_incorrect_classes_both_are_equal():
    student, labels = torch.randn(1, 5), torch.tensor([2])
    for log_probs, index in ((0.0, 2), (-torch.inf, -1)):  # all to the label; nothing kept at all
        top_k = TopK(torch.tensor([[log_probs]]), torch.tensor([[index]]))
        log_r, log_q = conditional_logs(student, top_k, labels, 1.0)
        assert torch.equal(log_r, log_q)
        assert log_r.isfinite().all()


def test_a_truncated_teacher_goes_with_classes_as_labels():
    top_k = TopK(torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.long))
    with pytest.raises(ValueError, match=r"labels: expected integer class indices with a truncated teacher"):
        check_teaching(torch.zeros(2, 4), top_k, torch.eye(2, 4))
    with pytest.raises(ValueError, match=r"top_log_probs: expected the positions of student_logits \(3,\)"):
        check_teaching(torch.zeros(3, 4), top_k, torch.tensor([0, 1, 2]))
