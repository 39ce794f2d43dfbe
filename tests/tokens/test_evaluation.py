"""A student on held-out text."""

import math

import numpy as np
import pytest
import torch

from tokens.tiny import fill, tiny_config, write_model
from tpkd.errors import InputError
from tpkd.models.language import load_language_model
from tpkd.theory import diagnose
from tpkd.tokens.cache import build_token_cache, open_text_cache
from tpkd.tokens.evaluation import evaluate, read_margins, teacher_loss, write_margins

TOKENS = 70


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    root = fill(tmp_path_factory.mktemp("tokens"))
    build_token_cache(tiny_config(root))
    cache, text = open_text_cache(tiny_config(root))
    return cache, text, load_language_model(str(write_model(root / "student", seed=3)))


def test_the_numbers_are_those_of_one_long_loop(scene):
    cache, text, student = scene
    tokens = torch.from_numpy(text.blocks.tokens)
    with torch.no_grad():
        logits = student(tokens).logits[:, :-1].reshape(-1, cache.num_classes)[:TOKENS]
    labels = tokens[:, 1:].reshape(-1)[:TOKENS]
    kept = cache.read(cache.documents, cache.blocks).rows()[:TOKENS]
    expected = diagnose(logits, kept, labels).summary()
    found, margins = evaluate(student, cache, TOKENS)
    assert found.tokens == TOKENS
    assert found.loss == pytest.approx(expected["all"]["label_loss"], rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(found.loss))
    assert found.blocked_share == pytest.approx(expected["blocked_share"])
    assert found.conditional_loss == pytest.approx(expected["all"]["conditional_loss"], rel=1e-4)
    assert found.transfer_cost == pytest.approx(expected["all"]["transfer_cost"], rel=1e-4)
    assert found.agreement == pytest.approx(float((logits.argmax(-1) == kept.indices[:, 0]).double().mean()))
    right = logits.gather(-1, labels[:, None]).squeeze(-1)
    strongest = logits.scatter(-1, labels[:, None], -torch.inf).amax(-1)
    np.testing.assert_allclose(margins, (right - strongest).numpy(), atol=1e-4)


def test_margins_that_fell_are_counted(scene):
    cache, _, student = scene
    _, margins = evaluate(student, cache, TOKENS)
    before = margins.copy()
    before[:7] += 0.5
    before[7:] -= 0.5
    assert evaluate(student, cache, TOKENS, before)[0].margin_fell == pytest.approx(7 / TOKENS)


def test_the_teachers_own_loss(scene):
    cache, _, _ = scene
    teacher = cache.read(cache.documents, cache.blocks).label_log_probs.reshape(-1)
    assert teacher_loss(cache, TOKENS) == pytest.approx(-float(teacher[:TOKENS].double().mean()))


def test_more_tokens_than_there_are_is_refused(scene):
    with pytest.raises(InputError, match=r"evaluation\.tokens: expected at most \d+ of .*, found 1000000"):
        evaluate(scene[2], scene[0], 1_000_000)


def test_margins_of_another_start_are_refused(tmp_path):
    path = tmp_path / "folder" / "start.safetensors"
    assert read_margins(path, "a") is None
    write_margins(path, np.arange(3.0), "a")
    assert read_margins(path, "a").tolist() == [0, 1, 2]
    with pytest.raises(InputError, match=r"expected margins of the start b…, found a…; remove it"):
        read_margins(path, "b")
