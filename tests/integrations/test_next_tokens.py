"""Labels are shifted once, and nothing is predicted across documents, padding or prompts."""

import pytest
import torch

from tpkd.errors import InputError
from tpkd.integrations.next_tokens import causal_targets, next_token_targets

TEXTS = [[5, 6, 7, 8], [9, 10], [11], [12, 13, 14]]


def pairs(tokens, targets):
    """(token, next token) of every position that counts."""
    return sorted((a, b) for a, b in zip(tokens.flatten().tolist(), targets.flatten().tolist(), strict=True) if b >= 0)


EXPECTED = sorted((text[place], text[place + 1]) for text in TEXTS for place in range(len(text) - 1))


def padded(side):
    def fill(text, value):
        missing = [value] * (6 - len(text))
        return text + missing if side == "right" else missing + text

    tokens = torch.tensor([fill(text, 0) for text in TEXTS])
    mask = torch.tensor([fill([1] * len(text), 0) for text in TEXTS])
    return tokens, mask


def test_packed_documents_predict_what_they_predict_apart():
    tokens = torch.tensor([[token for text in TEXTS for token in text]])
    positions = torch.tensor([[place for text in TEXTS for place in range(len(text))]])
    assert pairs(tokens, next_token_targets(tokens, position_ids=positions)) == EXPECTED
    # One row of positions for several rows of tokens; a document that starts in another block goes on.
    twice = next_token_targets(tokens.repeat(2, 1), position_ids=positions)
    assert pairs(tokens.repeat(2, 1), twice) == sorted(2 * EXPECTED)
    assert next_token_targets(torch.tensor([[1, 2, 3]]), position_ids=torch.tensor([[7, 8, 9]])).tolist() == [
        [2, 3, -100]
    ]


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_predicts_nothing_and_is_not_predicted(side):
    tokens, mask = padded(side)
    labels = torch.where(mask == 1, tokens, -100)
    assert pairs(tokens, next_token_targets(labels, attention_mask=mask)) == EXPECTED


def test_prompts_are_not_predicted():
    labels = torch.tensor([[-100, -100, 7, 8]])
    assert next_token_targets(labels).tolist() == [[-100, 7, 8, -100]]


def test_labels_that_are_shifted_already_are_left_alone():
    shifted = torch.tensor([[6, 7, -100]])
    assert causal_targets({"labels": torch.tensor([[5, 6, 7]]), "shift_labels": shifted}) is shifted


def test_positions_of_images_and_masks_of_pairs_say_nothing_of_documents():
    labels = torch.tensor([[5, 6, 7]])
    inputs = {"position_ids": torch.zeros(3, 1, 3, dtype=torch.long), "attention_mask": torch.zeros(1, 1, 3, 3)}
    assert causal_targets({"labels": labels} | inputs).tolist() == [[6, 7, -100]]


@pytest.mark.parametrize("labels", [None, torch.zeros(2), torch.zeros(2, 3)], ids=["none", "one axis", "floating"])
def test_labels_that_are_not_tokens_are_refused(labels):
    with pytest.raises(InputError, match=r"labels: expected the tokens of each text.*mlm=False"):
        causal_targets({"input_ids": torch.zeros(2, 3), "labels": labels})
