"""A block is what the theory says about its examples, and its known part the examples that bound something."""

import gc
import weakref

import torch

from tpkd.diagnosis.block import diagnose_block
from tpkd.geometry import TopK
from tpkd.theory import diagnose

Z = torch.tensor([[3.0, 1.0, 0.5, 0.0], [0.0, 2.0, 1.0, 0.3], [0.2, 0.1, 1.5, 0.4]], dtype=torch.float64)
Y = torch.tensor([0, 3, 2])
ROWS = torch.arange(10, 13)
STEP = {"beta": 1.0, "temperature": 4.0}


def top_k():
    log_t = torch.tensor([[0.4, 0.3, 0.2, 0.1]] * 3, dtype=torch.float64).log()
    return TopK(log_t[:, :3], torch.tensor([[0, 1, 2]] * 3))


def test_a_block_of_a_truncated_teacher_is_its_diagnosis_at_the_step_asked_for():
    block, expected = diagnose_block(ROWS, Z, top_k(), Y, **STEP), diagnose(Z, top_k(), Y, **STEP)
    for name in expected.names():
        assert torch.equal(getattr(block.state, name).nan_to_num(-1), getattr(expected, name).nan_to_num(-1)), name
    assert block.state.bounds == expected.bounds


def test_the_known_part_leaves_out_rows_without_the_labels_own_everywhere():
    block = diagnose_block(ROWS, Z, top_k(), Y, **STEP)
    assert block.state.label_known.tolist() == [True, False, True]
    known = block.known
    assert known.rows.tolist() == [10, 12]
    assert torch.equal(known.student, Z[[0, 2]])
    assert known.teacher.indices.shape == (2, 3)
    assert torch.equal(known.pair.log_ratio, block.pair.log_ratio[[0, 2]])
    assert torch.equal(known.state.transfer_cost, block.state.transfer_cost[[0, 2]])


def test_of_a_whole_teacher_every_example_is_known():
    block = diagnose_block(torch.arange(len(Z)), Z, torch.zeros_like(Z), Y, beta=0.5, temperature=1.0)
    assert block.known is block


def test_a_block_is_freed_with_its_last_reference():
    """Blocks are megabytes; what waits for the garbage collector adds up over a long file."""
    logits = torch.randn(4, 5, dtype=torch.float64)
    block = diagnose_block(
        torch.arange(4), logits, logits.flip(0), torch.tensor([0, 1, 2, 3]), beta=0.5, temperature=1.0
    )
    assert block.known is block
    freed = weakref.ref(block.state.blocked)
    gc.disable()
    try:
        del block
        assert freed() is None
    finally:
        gc.enable()
