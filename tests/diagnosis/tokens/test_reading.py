"""A language model's diagnosis in plain words."""

from dataclasses import replace

from diagnosis.tokens.records import record
from tpkd.diagnosis.tokens.reading import CAVEAT, read_tokens


def test_the_sentences_name_bounds_as_bounds():
    sentences = read_tokens(record())
    assert "perplexity of 12.18 and the teacher of 7.39" in sentences[0]
    assert sentences[1].startswith("On at most 12.5 % of the tokens")
    assert sentences[2].startswith("At least 0.250 nats per token")
    assert "the right token is below 1 %: at least 0.500 nats on 10 tokens" in sentences[3]


def test_one_group_is_not_compared():
    found = record()
    assert len(read_tokens(replace(found, by_confidence=found.by_confidence[:1]))) == 3


def test_bounds_hold_up_to_the_rounding_of_the_cache():
    assert CAVEAT.endswith("All of this holds up to the rounding of the answers in the cache.")
