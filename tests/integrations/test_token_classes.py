"""The teacher on the tokens that both networks have."""

import pytest
import torch

from tpkd.errors import InputError
from tpkd.geometry.top_k import TopK, check_top_k, complete_top_k
from tpkd.integrations.token_classes import on_student_tokens, shared_tokens, width_of
from tpkd.teacher.cache.truncation import truncate

TOKENS, STUDENT, TEACHER = 20, 24, 27


def teacher_logits(rows=6):
    return torch.randn(rows, TEACHER, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3


def test_padding_of_the_teacher_is_taken_out_and_that_of_the_student_ruled_out():
    logits = teacher_logits()
    found = on_student_tokens(logits, STUDENT, TOKENS).softmax(-1)
    expected = logits[:, :TOKENS].softmax(-1)
    torch.testing.assert_close(found, torch.cat([expected, torch.zeros(6, STUDENT - TOKENS)], -1).double())


def test_a_truncated_teacher_is_renormalised():
    """All classes kept: what is left is the whole teacher on the tokens."""
    logits = teacher_logits()
    labels = torch.arange(6)
    kept = truncate(logits, labels, TEACHER)
    found = on_student_tokens(kept, STUDENT, TOKENS)
    check_top_k(found, STUDENT)
    student = torch.zeros(6, STUDENT, dtype=torch.float64)
    parts = (found.log_probs, found.indices, labels)
    whole = complete_top_k(student, *parts, label_log_probs=found.label_log_probs, rest_log_probs=found.rest_log_probs)
    # The classes that nobody kept are the student's padding, and have no mass.
    torch.testing.assert_close(whole.exp()[:, :TOKENS], logits[:, :TOKENS].softmax(-1))
    assert not whole.exp()[:, TOKENS:].any()


def test_without_padding_the_teacher_stays_as_it_is():
    kept = TopK(torch.zeros(1, 1), torch.tensor([[3]]))
    assert on_student_tokens(kept, 5, None) is kept


def test_sizes_that_do_not_fit_are_refused():
    assert shared_tokens(STUDENT, TEACHER, TOKENS) == TOKENS
    assert shared_tokens(STUDENT, None, None) is None
    with pytest.raises(InputError, match=f"the student has {STUDENT} and the teacher {TEACHER}"):
        shared_tokens(STUDENT, TEACHER, None)
    for size in (2, STUDENT + 1):
        with pytest.raises(InputError, match=f"expected from 3 to the student's {STUDENT}, got {size}"):
            shared_tokens(STUDENT, TEACHER, size)


def test_the_width_is_that_of_the_table_and_not_of_the_configuration():
    model = torch.nn.Module()
    model.config = type("Config", (), {"vocab_size": 9})
    assert width_of(model) == 9
    model.get_output_embeddings = lambda: torch.nn.Linear(2, 12)
    assert width_of(model) == 12
