"""The rule by which documents become blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpkd.errors import InputError
from tpkd.tokens.packing import pack

DOCUMENTS = st.lists(st.lists(st.integers(1, 50), max_size=20), min_size=1, max_size=8)


@given(DOCUMENTS, st.integers(2, 7))
def test_blocks_are_the_stream_and_keys_say_where_they_begin(documents, length):
    """By a loop over tokens, each with the document that it belongs to."""
    stream = [(token, number) for number, tokens in enumerate(documents) for token in (*tokens, 0)]
    count = len(stream) // length
    if not count:
        with pytest.raises(InputError, match=r"packing\.length"):
            pack(documents, length, 0)
        return
    found = pack(documents, length, 0)
    assert len(found) == count
    seen: dict[int, int] = {}
    for block in range(count):
        part = stream[block * length : (block + 1) * length]
        owner = part[0][1]
        assert found.tokens[block].tolist() == [token for token, _ in part]
        assert (found.documents[block], found.numbers[block]) == (owner, seen.get(owner, 0))
        seen[owner] = seen.get(owner, 0) + 1


def test_the_first_blocks():
    found = pack([list(range(1, 20))], 4, 0).first(2)
    assert (found.tokens.tolist(), found.numbers.tolist()) == ([[1, 2, 3, 4], [5, 6, 7, 8]], [0, 1])
    assert found.tokens.dtype == np.int64
