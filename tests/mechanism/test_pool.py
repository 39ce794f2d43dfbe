"""Rows of a pool are read in blocks that do not matter, in their own views, with their own labels."""

import numpy as np
import torch

from tpkd.mechanism.bench import open_bench
from tpkd.mechanism.pool import Rows


def test_all_views_of_one_sample_after_the_other_in_blocks_of_any_size(ce_run):
    bench = open_bench(ce_run.config)
    dataset = bench.run.dataset.subset(np.array([3, 5, 8]))
    rows = Rows.in_all_views(dataset, 8)
    assert torch.equal(rows.labels, torch.from_numpy(np.repeat(dataset.labels, 8)))
    blocks = {size: list(rows.blocks(bench.run.preparation, size)) for size in (5, 24)}
    assert [len(block) for block in blocks[5]] == [5, 5, 5, 5, 4]
    for field in ("inputs", "labels", "sample_ids", "view_ids"):
        small, large = (torch.cat([getattr(block, field) for block in of]) for of in blocks.values())
        assert torch.equal(small, large), field
    assert blocks[24][0].view_ids.tolist() == 3 * list(range(8))
    assert blocks[24][0].sample_ids.tolist() == np.repeat(dataset.ids, 8).tolist()


def test_a_student_is_diagnosed_against_the_answers_it_is_given(ce_run):
    bench = open_bench(ce_run.config)
    rows = Rows(bench.run.dataset, np.arange(10), np.zeros(10, dtype=np.int64))
    (block,) = rows.blocks(bench.run.preparation, 10)
    own = bench.student_logits(block.inputs)
    assert (rows.diagnose(bench, own).conditional_loss == 0).all()
    assert (rows.diagnose(bench, own.flip(0)).conditional_loss > 0).any()
