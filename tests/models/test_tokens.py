import re

import pytest
import torch

from models.networks import TINY_BERT, real_data
from tpkd.errors import InputError
from tpkd.models.registry import build_model, encoder_for
from tpkd.models.spec import ModelSpec
from tpkd.models.tokens import HashedWords, TextEncoding

TEXTS = ["What's my balance?", "hello", "", "straße ÄÖ 你好 😀", "word " * 200]


@pytest.mark.parametrize("vocab_size", [4, 50, 30522])
def test_hashed_words_give_ids_within_the_vocabulary_between_their_marks(vocab_size):
    for row in HashedWords(vocab_size).ids(TEXTS, max_length=16):
        assert 2 <= len(row) <= 16
        assert (row[0], row[-1]) == (1, 2)
        assert all(3 <= token < vocab_size for token in row[1:-1])


def test_hashed_words_see_words_and_punctuation_but_not_case_and_spaces():
    words = HashedWords(30522)
    pay, capital, spaced, other = words.ids(["pay my bill", "PAY my Bill", "  pay\tmy\n bill ", "pay my bill?"], 16)
    assert pay == capital == spaced == [*other[:-2], 2]
    assert len(set(pay)) == 5


@pytest.mark.parametrize("padding", ["max_length", "longest"])
def test_encodings_pad_at_the_end_and_mask_what_they_pad(padding):
    encode = encoder_for("builtin:bert", options=TINY_BERT, max_length=12, padding=padding)
    texts = TEXTS[:4]
    batch = encode(texts)
    rows = encode.tokenizer.ids(texts, 12)
    width = 12 if padding == "max_length" else max(map(len, rows))
    for name, fill in (("input_ids", rows), ("attention_mask", [[1] * len(row) for row in rows])):
        assert batch[name].tolist() == [row + [0] * (width - len(row)) for row in fill]
        assert batch[name].dtype == torch.int64


def test_padding_does_not_change_the_logits():
    model = build_model(ModelSpec("builtin:bert", num_classes=4, options=TINY_BERT)).eval()
    fixed, longest = (
        model(encoder_for("builtin:bert", options=TINY_BERT, max_length=30, padding=padding)(TEXTS[:4]))
        for padding in ("max_length", "longest")
    )
    # the same float32 sums in another grouping
    torch.testing.assert_close(fixed, longest, rtol=0, atol=1e-6)


def test_what_a_cache_binds_to_tells_encodings_apart():
    seen = [
        TextEncoding(HashedWords(vocabulary), length, padding).to_dict()
        for vocabulary in (50, 60)
        for length in (8, 16)
        for padding in ("max_length", "longest")
    ]
    assert len({tuple(sorted(entry.items())) for entry in seen}) == 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": 2}, "max_length: expected at least 3, found 2"),
        ({"padding": "left"}, "padding: expected one of max_length, longest, found 'left'"),
    ],
)
def test_bad_encodings_are_refused(settings, message):
    with pytest.raises(InputError, match=re.escape(message)):
        encoder_for("builtin:bert", **settings)


@pytest.mark.parametrize("padding", ["max_length", "longest"])
def test_pretrained_tokenizer_gives_what_its_library_gives(padding):
    from transformers import AutoTokenizer

    folder = str(real_data() / "weights/paraphrase-minilm-l3")
    reference = AutoTokenizer.from_pretrained(folder)
    encode = encoder_for(f"hf:{folder}", max_length=24, padding=padding)
    expected = reference(TEXTS, padding=padding, truncation=True, max_length=24, return_tensors="pt")
    batch = encode(TEXTS)
    for name in ("input_ids", "attention_mask"):
        assert torch.equal(batch[name], expected[name])
    assert encode.to_dict() == encoder_for(f"hf:{folder}", max_length=24, padding=padding).to_dict()
    bert = encoder_for("builtin:bert", options={"tokenizer": folder}, max_length=24, padding=padding)
    assert bert.to_dict() == encode.to_dict()
    with pytest.raises(InputError, match="vocab_size: expected at least the tokenizer's 30522"):
        encoder_for("builtin:bert", options={"tokenizer": folder, "vocab_size": 30521})


def test_a_vocabulary_without_room_for_a_word_is_refused():
    with pytest.raises(InputError, match="vocab_size: expected at least 4, found 3"):
        HashedWords(vocab_size=3)
    assert HashedWords(vocab_size=4).ids(["one word"], max_length=8) == [[1, 3, 3, 2]]
