from pathlib import Path

import pytest

from tpkd.errors import InputError
from tpkd.teacher.cache.parts import Part, place_of_whole


@pytest.mark.parametrize(
    "text", ["", "2", "0/4", "5/4", "a/b", "1/0", "-1/4", "1/4/2", "1 / 4", "1/4\n", "1/" + "9" * 30]
)
def test_what_names_no_part_is_refused(text):
    with pytest.raises(InputError, match="part: expected I/N with I from 1 to N, such as 2/4, found"):
        Part.parse(text)


@pytest.mark.parametrize("total", [1, 2, 3, 7, 10])
@pytest.mark.parametrize("shards", [1, 7, 10, 100])
def test_parts_are_even_and_cover_all_shards(shards, total):
    parts = [Part(number, total).shards(shards) for number in range(1, total + 1)]
    assert [shard for part in parts for shard in part] == list(range(shards))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_part_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="part: expected a number from 1 to 2, got 3"):
        Part(3, 2)


def test_the_names_of_parts_lead_back_to_the_cache():
    cache = Path("runs/a.part-b")
    assert place_of_whole([Part(number, 3).place(cache) for number in (1, 2, 3)]) == cache
    assert place_of_whole([Part(1, 2).place(cache), Part(2, 2).place(Path("other"))]) is None
    assert place_of_whole([cache]) is None
