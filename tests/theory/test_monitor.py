import subprocess
import sys

import pytest
import torch

from strategies import INTEGER_TYPES, labels_of_type, make_pairs
from tpkd.theory import diagnose, observe


@pytest.fixture
def logits():
    generator = torch.Generator().manual_seed(3)
    return 3 * torch.randn(2, 64, 10, generator=generator), torch.randint(10, (64,), generator=generator)


def test_it_reports_the_means_of_a_diagnosis(logits):
    (student, teacher), labels = logits
    means = diagnose(student, teacher, labels).summary()
    seen = observe(student, teacher, labels)
    assert seen["blocked_share"].item() == pytest.approx(means["blocked_share"])
    for name in ("conditional_loss", "compensation", "retention", "label_loss", "transfer_cost", "confidence"):
        assert seen[name].item() == pytest.approx(means["all"][name], rel=1e-5)


def test_ignored_rows_do_not_count_even_when_they_are_not_finite(logits):
    (student, teacher), labels = logits
    masked, broken = labels.clone(), student.clone()
    masked[::2], broken[::2] = -100, torch.nan
    seen = observe(broken, teacher, masked)
    expected = observe(student[1::2], teacher[1::2], labels[1::2])
    assert seen.keys() == expected.keys()
    assert all(torch.equal(seen[name], expected[name]) for name in seen)


def test_the_names_are_the_same_where_nothing_is_valid(logits):
    (student, teacher), labels = logits
    nothing = observe(student, teacher, torch.full_like(labels, -100))
    assert nothing.keys() == observe(student, teacher, labels).keys()
    assert not any(nothing.values())


def test_it_leaves_no_graph(logits):
    (student, teacher), labels = logits
    seen = observe(student.requires_grad_(), teacher, labels)
    assert not any(value.requires_grad for value in seen.values())


def test_positions_of_any_shape_and_another_mask(logits):
    (student, teacher), labels = logits
    masked = labels.clone()
    masked[::4] = 77
    seen = observe(student.view(8, 8, 10), teacher.view(8, 8, 10), masked.view(8, 8), ignore_index=77)
    expected = observe(student, teacher, torch.where(masked == 77, -100, labels))
    assert all(torch.equal(seen[name], expected[name]) for name in seen)


def test_a_loop_of_ones_own_needs_no_extra():
    """The training engine wants pydantic and accelerate; the monitor must not."""
    code = """
import sys
sys.modules.update(dict.fromkeys(("pydantic", "accelerate", "yaml", "sklearn", "tensorboard")))
from tpkd.theory import observe
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_labels_mean_the_same_in_every_integer_type():
    student, teacher, _ = make_pairs("random", 5, 300, seed=1)
    for dtype in INTEGER_TYPES:
        labels = labels_of_type(dtype, 5, 300)
        assert observe(student, teacher, labels) == observe(student, teacher, labels.long())
        found, expected = (diagnose(student, teacher, each).summary() for each in (labels, labels.long()))
        assert found == expected
