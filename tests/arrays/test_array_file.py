"""Names in archives, and blocks of one length out of parts of any."""

import pytest
import torch

from tpkd.arrays import ArrayFile, TextFile
from tpkd.arrays.array_file import choose_key, regrouped
from tpkd.errors import InputError


@pytest.mark.parametrize("lengths", [(10,), (1,) * 10, (3, 0, 4, 3), (0, 10), (4, 6, 0), ()])
@pytest.mark.parametrize("rows", [1, 3, 5, 10, 99])
def test_blocks_have_one_length_whatever_the_parts_have(lengths, rows):
    parts = torch.arange(2 * sum(lengths)).reshape(-1, 2).split(list(lengths)) if lengths else []
    blocks = list(regrouped(parts, rows))
    assert all(len(block) == rows for block in blocks[:-1])
    assert [row for block in blocks for row in block.tolist()] == [row for part in parts for row in part.tolist()]


def test_a_long_list_of_names_is_shortened(tmp_path):
    with pytest.raises(InputError, match=r"found layer0, layer1, .* and 492 more$"):
        choose_key(tmp_path / "weights.pth", [f"layer{place}" for place in range(500)], "logits")


@pytest.mark.parametrize("kind", [ArrayFile, TextFile])
def test_blocks_have_rows(tmp_path, kind):
    fields = (tmp_path, (0,), torch.int64) if kind is ArrayFile else (tmp_path, 0)
    with pytest.raises(ValueError, match="rows: expected at least 1, got 0"):
        list(kind(*fields, lambda rows: iter(())).blocks(0))
