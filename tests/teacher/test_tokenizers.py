"""The fingerprint of a tokeniser."""

import pytest

from tokens.tiny import write_model
from tpkd.errors import InputError
from tpkd.models.language import load_tokenizer
from tpkd.teacher.tokenizers import tokenizer_sha256


def test_it_depends_on_the_tokeniser_alone(tmp_path):
    first, again = (load_tokenizer(str(write_model(tmp_path / name))) for name in ("a", "b"))
    other = load_tokenizer(str(write_model(tmp_path / "c", vocabulary=290)))
    assert tokenizer_sha256(first) == tokenizer_sha256(again) != tokenizer_sha256(other)


def test_padding_and_truncation_of_a_call_do_not_matter(tmp_path):
    tokenizer = load_tokenizer(str(write_model(tmp_path)))
    before = tokenizer_sha256(tokenizer)
    tokenizer(["a cat", "a cat sat on the mat"], padding=True, truncation=True, max_length=3)
    assert tokenizer_sha256(tokenizer) == before


def test_a_slow_tokeniser_is_refused():
    with pytest.raises(InputError, match=r"tokenizer: expected one with a tokenizer\.json, found str"):
        tokenizer_sha256("slow")
