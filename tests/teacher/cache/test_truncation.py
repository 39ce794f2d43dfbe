"""What is kept of a row, against plain Python and against the row itself."""

import math

import numpy as np
import pytest
import torch

from teacher.cache.toys import assert_truncated
from tpkd.geometry.top_k import check_top_k, complete_top_k
from tpkd.teacher.cache.truncation import has_rest, top_classes, truncate


def random_rows(seed, rows=40, num_classes=12, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, num_classes, generator=generator)
    return logits, torch.randint(num_classes, (rows,), generator=generator)


@pytest.mark.parametrize("k", [1, 2, 5, 10, 11, 12])
@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
def test_it_agrees_with_plain_python(k, scale):
    logits, labels = random_rows(k, scale=scale)
    kept = truncate(logits, labels, k)
    assert_truncated(kept, logits.tolist(), labels.tolist(), "float32")
    check_top_k(kept, 12)
    assert has_rest(kept, labels, 12).tolist() == [value > -math.inf for value in kept.rest_log_probs.tolist()]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_computed_in_float32(dtype):
    logits, labels = random_rows(0)
    kept = truncate(logits.to(dtype), labels, 4)
    assert kept.log_probs.dtype == kept.rest_log_probs.dtype == torch.float32
    assert_truncated(kept, logits.to(dtype).tolist(), labels.tolist(), "float32")
    assert truncate(logits.double(), labels, 4).rest_log_probs.dtype == torch.float64


def test_of_equal_classes_the_lower_ones_are_kept_in_order():
    generator = np.random.default_rng(0)
    for _ in range(50):  # four values for eleven classes: most edges are ties
        logits = generator.integers(0, 4, (7, 11)).astype(np.float32)
        for k in (1, 3, 6, 11):
            expected = [sorted(range(11), key=lambda c, row=row: (-row[c], c))[:k] for row in logits.tolist()]
            assert top_classes(torch.from_numpy(logits), k).tolist() == expected


def test_the_rest_of_a_sure_teacher_survives_where_one_minus_the_others_is_nothing():
    """The whole tail of 10,000 classes weighs 1e-9, far below what a probability near one resolves in float16."""
    num_classes = 10_000
    logits, labels = torch.zeros(1, num_classes), torch.tensor([3])
    logits[0, 3], logits[0, 7] = 30.0, 5.0
    kept = truncate(logits, labels, 2)
    tail = num_classes - 2
    exact = math.log(tail) - math.log(math.exp(30.0) + math.exp(5.0) + tail)
    assert kept.rest_log_probs.item() == pytest.approx(exact, rel=1e-6)
    rounded = kept.map(lambda values: values.half() if values.is_floating_point() else values)
    assert 1 - rounded.log_probs.double().exp().sum().item() <= 0


@pytest.mark.parametrize("k", [9, 10, 11])
def test_with_at_most_one_class_left_out_the_row_comes_back_whole(k):
    """Whatever the student says: of a single class nothing but its own share can be the rest."""
    logits, labels = random_rows(3, rows=200, num_classes=11)
    kept = truncate(logits, labels, k)
    student = torch.randn(200, 11)
    whole = complete_top_k(
        student,
        kept.log_probs,
        kept.indices,
        labels,
        label_log_probs=kept.label_log_probs,
        rest_log_probs=kept.rest_log_probs,
    )
    without_label = (kept.indices != labels[:, None]).all(-1)
    one_left = 11 - k - without_label.int() <= 1
    assert one_left.any()
    torch.testing.assert_close(whole[one_left], logits[one_left].log_softmax(-1), rtol=1e-5, atol=1e-5)
    assert (k < 10) != one_left.all()
