"""The costliest examples name their label, and of a teacher's competitors only those that it spoke of."""

import torch

from tpkd.diagnosis.examples import costliest_examples
from tpkd.diagnosis.totals import KeptRows
from tpkd.geometry import TopK

Z = torch.tensor([[3.0, 1.0, 0.5, 0.0, -1.0]], dtype=torch.float64)
ZT = torch.tensor([[0.40, 0.05, 0.30, 0.15, 0.10]], dtype=torch.float64).log()
NAMES = ("a", "b", "c", "d", "e")
ROW = torch.tensor([7])


def names_of(competitors):
    return [competitor.name for competitor in competitors]


def test_a_whole_teacher_names_its_three_largest_competitors():
    (example,) = costliest_examples(KeptRows(ROW, Z, ZT, torch.tensor([0])), NAMES, None)
    assert (example.row, example.id, example.label) == (7, "7", "a")
    assert names_of(example.student_competitors) == ["b", "c", "d"]
    assert names_of(example.teacher_competitors) == ["c", "d", "e"]


def test_a_truncated_teacher_names_only_what_it_kept():
    top_k = TopK(ZT[:, [0, 2]], torch.tensor([[0, 2]]))
    (example,) = costliest_examples(KeptRows(ROW, Z, top_k, torch.tensor([0])), NAMES, None)
    assert names_of(example.teacher_competitors) == ["c"]
    assert abs(example.teacher_competitors[0].probability - 0.5) < 1e-12
    assert names_of(example.student_competitors) == ["b", "c", "d"]


def test_a_soft_label_is_called_by_its_classes():
    labels = torch.tensor([[0.3, 0.0, 0.7, 0.0, 0.0]], dtype=torch.float64)
    (example,) = costliest_examples(KeptRows(ROW, Z, ZT, labels), NAMES, None)
    assert example.label == "c + a"
    assert names_of(example.teacher_competitors) == ["d", "e", "b"]
