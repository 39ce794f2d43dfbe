"""What all sources share: rows that belong to no sample are left out, and how much is read at a time."""

import numpy as np
import torch

from tpkd.importing.source import BLOCK_BYTES, Source, rows_per_block


class Numbers(Source):
    rows, num_views, top_k = 6, 2, None

    def check(self, positions, dtype):
        """Nothing to look at."""

    def parts(self):
        yield from ({"logits": part} for part in torch.arange(12).split(4))


def test_the_rows_of_no_sample_are_left_out_with_all_their_views():
    stream = Numbers().stream(np.array([4, -1, 0, -1, -1, 2]))
    assert stream.read(0, 3)["logits"].tolist() == [0, 1, 4]
    assert stream.read(3, 6)["logits"].tolist() == [5, 10, 11]


def test_a_block_is_small_and_never_empty():
    assert rows_per_block(BLOCK_BYTES * 3) == 1
    assert rows_per_block(100) * 100 <= BLOCK_BYTES
