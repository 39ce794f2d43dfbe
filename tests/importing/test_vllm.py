"""The answers of a vLLM server; `vllm_answer.json` has the shape that its protocol documents, written by hand."""

import copy
import json
import math
from pathlib import Path

import numpy as np
import pytest

from tpkd.errors import InputError
from tpkd.importing.vllm import read_answers

ANSWER = json.loads((Path(__file__).parent / "vllm_answer.json").read_text())
TOKENS = np.array([[5, 17, 3, 11]])


def write(path, *answers):
    path.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    return path


def changed(change):
    answer = copy.deepcopy(ANSWER)
    change(answer["choices"][0])
    return answer


def echoed(name="token_id:{}"):
    """The same in the older form: `echo: true` with `logprobs`."""
    said = ANSWER["choices"][0]["prompt_logprobs"]
    tokens = [5, 17, 3, 11]
    top = [
        None if each is None else {name.format(t): e["logprob"] for t, e in each.items() if e["rank"] <= 2}
        for each in said
    ]
    own = [None if each is None else each[str(t)]["logprob"] for t, each in zip(tokens, said, strict=True)]
    logprobs = {
        "text_offset": [0, 3, 6, 9, 12],
        "token_logprobs": [*own, -1.0],
        "tokens": [*(name.format(token) for token in tokens), name.format(4)],
        "top_logprobs": [*top, {name.format(4): -1.0, name.format(2): -2.0}],
    }
    return changed(lambda choice: choice.update(prompt_logprobs=None, logprobs=logprobs))


@pytest.mark.parametrize("answer", [ANSWER, echoed()], ids=["prompt_logprobs", "echo"])
def test_what_is_read_of_an_answer(tmp_path, answer):
    (found,) = read_answers(write(tmp_path / "a.jsonl", answer), TOKENS, 2)
    said = ANSWER["choices"][0]["prompt_logprobs"]
    for place, token in enumerate([17, 3, 11]):
        entries = {int(t): e["logprob"] for t, e in said[place + 1].items()}
        ranked = [
            int(t) for t, e in sorted(said[place + 1].items(), key=lambda item: item[1]["rank"]) if e["rank"] <= 2
        ]
        assert found["indices"][0, place].tolist() == ranked
        assert found["log_probs"][0, place].tolist() == pytest.approx([entries[t] for t in ranked])
        assert found["label_log_probs"][0, place].item() == pytest.approx(entries[token])
        others = sum(math.exp(entries[t]) for t in {*ranked, token})
        assert found["rest_log_probs"][0, place].exp().item() == pytest.approx(1 - others, abs=1e-6)


def test_several_choices_are_blocks_in_the_order_of_their_indices(tmp_path):
    second = changed(lambda choice: choice.update(index=1))["choices"][0]
    first = copy.deepcopy(ANSWER["choices"][0])
    first["prompt_logprobs"][1]["17"]["logprob"] = -2.5
    both = ANSWER | {"choices": [second, first]}
    found = list(read_answers(write(tmp_path / "a.jsonl", both), TOKENS.repeat(2, 0), 1))
    assert found[0]["label_log_probs"][0, 0].item() == -2.5
    assert len(found) == 2


def drop_label(choice):
    del choice["prompt_logprobs"][2]["3"]


WRONG = {
    "other text": (
        changed(drop_label),
        r"block 0, token 2: expected the log-probability of token 3, found none; other text",
    ),
    "other ids": (
        changed(lambda choice: choice.update(prompt_token_ids=[5, 17, 3, 12])),
        r"prompt_token_ids: expected those of the text, found others",
    ),
    "too few": (
        changed(lambda choice: [each.pop(next(iter(reversed(each)))) for each in choice["prompt_logprobs"][1:]]),
        r"expected \d log-probabilities, found \d; ask for prompt_logprobs: \d, and start .* with --max-logprobs",
    ),
    "none": (changed(lambda choice: choice.update(prompt_logprobs=None)), r"expected prompt_logprobs, found none"),
    "shorter": (
        changed(lambda choice: choice["prompt_logprobs"].pop()),
        r"expected 4 tokens, the first without log-probabilities, found 3",
    ),
    "not log-probabilities": (
        changed(lambda choice: choice["prompt_logprobs"][1].update({"4": {"rank": 1}})),
        r"prompt_logprobs: expected token ids with logprob",
    ),
    "texts": (echoed("word{}"), r"expected token ids, found the text 'word\d+', .* return_tokens_as_token_ids: true"),
    "an error": (
        {"object": "error", "message": "Requested prompt logprobs of 64, which is greater than max allowed: 20"},
        r"line 1: expected an answer with choices, found 'Requested prompt logprobs of 64",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_that_does_not_fit_is_refused(tmp_path, name):
    answer, message = WRONG[name]
    with pytest.raises(InputError, match=message):
        list(read_answers(write(tmp_path / "a.jsonl", answer), TOKENS, 3 if name == "too few" else 2))


def test_the_number_of_answers_must_be_that_of_the_blocks(tmp_path):
    path = write(tmp_path / "a.jsonl", ANSWER, ANSWER)
    with pytest.raises(InputError, match=r"line 2: expected 1 blocks as the text has, found more"):
        list(read_answers(path, TOKENS, 2))
    with pytest.raises(InputError, match=r"expected answers about 3 blocks as the text has, found 2"):
        list(read_answers(path, TOKENS.repeat(3, 0), 2))


def test_what_is_not_json_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text("<html>\n")
    with pytest.raises(InputError, match=r"line 1: expected JSON, found '<html>'"):
        list(read_answers(tmp_path / "a.jsonl", TOKENS, 2))
