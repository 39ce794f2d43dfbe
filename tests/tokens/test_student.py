"""The student of a token cache: another tokeniser and too small a vocabulary are refused."""

import json

import pytest
import torch

from tokens.tiny import fill, permute_tokens, tiny_config, write_model
from tpkd.config.loading import ConfigError
from tpkd.models.language import load_tokenizer
from tpkd.tokens.cache import build_token_cache, load_text, open_text_cache
from tpkd.tokens.student import check_vocabulary, load_student, load_student_tokenizer


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = fill(tmp_path_factory.mktemp("tokens"))
    build_token_cache(tiny_config(folder))
    return folder


def with_student(root, folder, **section):
    return tiny_config(root, student={"model": f"hf:{folder}", **section})


def test_layers_of_the_teacher_have_its_tokeniser(root):
    config = tiny_config(root, student={"layers": [0, 2]})
    tokenizer = load_text(config).tokenizer
    assert load_student_tokenizer(config, tokenizer) is tokenizer
    assert load_student(config).config.num_hidden_layers == 2


def test_another_network_keeps_its_own_tokeniser(root, tmp_path):
    config = with_student(root, write_model(tmp_path, seed=1, layers=1))
    expected = load_text(config).tokenizer
    own = load_student_tokenizer(config, expected)
    assert own is not expected
    assert own.name_or_path == str(tmp_path)
    assert len(load_student(config).model.layers) == 1


@pytest.mark.parametrize(
    ("vocabulary", "difference"),
    [
        (302, r"token 'Ġwhile' is unknown in the cache and number 300 in the student"),
        (290, r"token 'lept' is number 290 in the cache and unknown in the student"),
        ("permuted", r"token 'a' is number 65 in the cache and number 66 in the student"),
    ],
)
def test_another_tokeniser_is_refused_by_its_first_token(root, tmp_path, vocabulary, difference):
    if vocabulary == "permuted":
        student = permute_tokens(write_model(tmp_path))
    else:
        student = write_model(tmp_path, vocabulary=vocabulary)
    config = with_student(root, student)
    message = rf"^student\.model: expected the tokeniser of the cache, \w+…, found \w+…: {difference}; choose a student"
    with pytest.raises(ConfigError, match=message):
        load_student_tokenizer(config, load_text(config).tokenizer)


def test_the_way_out_of_another_form_of_one_tokeniser_works(root, tmp_path):
    config = with_student(root, write_model(tmp_path))
    path = tmp_path / "tokenizer.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps(state | {"normalizer": {"type": "NFC"}}))
    expected = load_text(config).tokenizer
    with pytest.raises(ConfigError, match=r"every token has the same number in both.* save the teacher's tokeniser"):
        load_student_tokenizer(config, expected)
    load_tokenizer(str(root / "model")).save_pretrained(tmp_path)
    assert load_student_tokenizer(config, expected).get_vocab() == expected.get_vocab()


@pytest.mark.parametrize("padding", [0, 4])
def test_rows_that_are_no_tokens_are_welcome(root, tmp_path, padding):
    config = with_student(root, write_model(tmp_path, padding=padding))
    load_student_tokenizer(config, load_text(config).tokenizer)
    check_vocabulary(config, load_student(config), open_text_cache(config)[0])


def test_fewer_logits_than_the_cache_has_classes_are_refused_and_can_be_padded(root, tmp_path):
    padded = write_model(tmp_path / "padded", padding=4)
    places = (("teacher.model", f"hf:{padded}"), ("teacher.cache", str(tmp_path / "cache")))
    build_token_cache(tiny_config(root, *places))
    cache = open_text_cache(tiny_config(root, *places))[0]
    config = tiny_config(root, *places, student={"model": f"hf:{root / 'model'}"})
    student = load_student(config)
    with pytest.raises(
        ConfigError, match=r"^student\.model: expected at least 304 logits, .*cache, found 300; resize_"
    ):
        check_vocabulary(config, student, cache)
    torch.manual_seed(0)  # of the new rows
    student.resize_token_embeddings(304)
    check_vocabulary(config, student, cache)
    narrow = tiny_config(root, places[1])  # layers of another teacher than the one that was cached
    with pytest.raises(ConfigError, match=r"^teacher\.model: expected at least 304 logits"):
        check_vocabulary(narrow, load_student(narrow), cache)
