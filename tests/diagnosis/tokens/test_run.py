"""The diagnosis of a language model, against the plain diagnosis of its tokens."""

import math
from collections import Counter

import pytest
import torch

from tokens.tiny import fill, tiny_config, write_model
from tpkd.diagnosis.tokens.run import INSTRUCTIVE, diagnose_tokens
from tpkd.models.language import load_language_model
from tpkd.theory import diagnose
from tpkd.tokens.cache import build_token_cache, open_text_cache

BLOCKS = 10


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    root = fill(tmp_path_factory.mktemp("tokens"))
    build_token_cache(tiny_config(root))
    cache, text = open_text_cache(tiny_config(root))
    student = load_language_model(str(write_model(root / "student", seed=3)))
    found = diagnose_tokens(
        "student",
        lambda tokens: student(tokens[:, :-1]).logits,
        cache,
        lambda ids: text.tokenizer.decode(ids),
        blocks=BLOCKS,
        batch_size=3,
    )
    tokens = torch.from_numpy(text.blocks.tokens[:BLOCKS])
    with torch.no_grad():
        logits = student(tokens).logits[:, :-1].reshape(-1, cache.num_classes)
    kept = cache.read(cache.documents[:BLOCKS], cache.blocks[:BLOCKS]).rows()
    return found, diagnose(logits, kept, tokens[:, 1:].reshape(-1)), tokens, text


def test_the_means_over_all_tokens(scene):
    found, expected, _, _ = scene
    means = expected.summary()["all"]
    assert found.all.tokens == BLOCKS * 15
    assert found.all.blocked_share == pytest.approx(float(expected.blocked.double().mean()))
    assert found.all.conditional_loss == pytest.approx(means["conditional_loss"], rel=1e-4)
    assert found.all.transfer_cost == pytest.approx(means["transfer_cost"], rel=1e-4)
    assert found.perplexity == pytest.approx(math.exp(means["label_loss"]), rel=1e-4)


def group_by(scene, name):
    """Mean conditional loss by group, in a plain loop."""
    _, expected, tokens, _ = scene
    labels = tokens[:, 1:].reshape(-1).tolist()
    counts = Counter(labels)
    sums: dict[str, list[float]] = {}
    for row, label in enumerate(labels):
        if name == "by_position":
            place = row % 15 + 1
            key = {1: "1", 2: "2 to 3", 4: "4 to 7", 8: "8 to 15"}[2 ** (place.bit_length() - 1)]
        elif name == "by_frequency":
            times = counts[label]
            key = "once" if times == 1 else "2 to 9 times" if times < 10 else "10 to 99"
        else:
            share = expected.teacher_confidence[row].item()
            key = next(n for edge, n in ((0.01, "below 1 %"), (0.1, "1 to 10 %"), (0.5, "10 to 50 %")) if share < edge)
        sums.setdefault(key, []).append(expected.conditional_loss[row].item())
    return sums


@pytest.mark.parametrize("name", ["by_position", "by_frequency", "by_confidence"])
def test_the_means_by_group(scene, name):
    expected = group_by(scene, name)
    found = {group.name: group.means for group in getattr(scene[0], name) if group.means.tokens}
    assert found.keys() == expected.keys()
    assert len(found) > 1
    for key, values in expected.items():
        assert found[key].tokens == len(values)
        assert found[key].conditional_loss == pytest.approx(sum(values) / len(values), rel=1e-4)


def test_the_most_instructive_tokens_with_their_context(scene):
    found, expected, tokens, text = scene
    largest = expected.conditional_loss.sort(descending=True).values[:INSTRUCTIVE].tolist()
    assert [token.conditional_loss for token in found.instructive] == pytest.approx(largest, rel=1e-4)
    first = found.instructive[0]
    row = int(((text.blocks.documents == first.document) & (text.blocks.numbers == first.block)).nonzero()[0][0])
    said = tokens[row].tolist()
    assert first.token == text.tokenizer.decode([said[first.place]])
    assert first.before == text.tokenizer.decode(said[: first.place])
    assert first.after == text.tokenizer.decode(said[first.place + 1 : first.place + 9])
    assert len(first.teacher_choices) == len(first.student_choices) == 3
    assert first.teacher_choices[0].probability >= first.teacher_choices[1].probability


def test_the_record_comes_back_from_its_file(scene):
    assert type(scene[0]).from_json(scene[0].to_json()) == scene[0]
