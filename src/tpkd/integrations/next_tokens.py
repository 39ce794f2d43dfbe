"""What each position of a text is compared with: a language model's labels, shifted once and only once."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import pad

from tpkd.errors import InputError
from tpkd.objectives.reduction import IGNORE_INDEX

SHIFTED = "shift_labels"
"""The column of labels that a collator has shifted already; they are taken as they are."""


def next_token_targets(
    labels: Int[Tensor, "batch length"],
    *,
    position_ids: Int[Tensor, "rows length"] | None = None,
    attention_mask: Int[Tensor, "batch length"] | None = None,
) -> Int[Tensor, "batch length"]:
    """The label of the token after each position, -100 where there is none to predict.

    Entry t is what the logits of position t are compared with. It is -100

    - at the end of a row;
    - where the label of the next token is -100: padding and prompts;
    - at the last token of a document, where several are packed into a row. `position_ids` say where one ends: wherever
      the next is not one more, as transformers itself finds packed documents. The first token of a document is then
      predicted by nothing, as if its document stood alone;
    - where `attention_mask` is 0: padding on the left predicts nothing.

    Example:
        >>> import torch
        >>> labels = torch.tensor([[5, 6, 7, 8, 9]])
        >>> next_token_targets(labels)
        tensor([[   6,    7,    8,    9, -100]])
        >>> next_token_targets(labels, position_ids=torch.tensor([[0, 1, 2, 0, 1]]))
        tensor([[   6,    7, -100,    9, -100]])
    """
    targets = pad(labels[:, 1:], (0, 1), value=IGNORE_INDEX)
    if position_ids is not None:
        continues = pad(position_ids.diff(dim=-1) == 1, (0, 1), value=False)
        targets = targets.masked_fill(~continues, IGNORE_INDEX)
    if attention_mask is not None:
        targets = targets.masked_fill(attention_mask == 0, IGNORE_INDEX)
    return targets


def refuse_shifted_labels(inputs: Mapping[str, Any]) -> None:
    """Refuse labels that were shifted under the name of labels that were not: shifted again, they skip a token.

    Example:
        >>> import torch
        >>> refuse_shifted_labels({"input_ids": torch.tensor([[5, 6, 7]]), "labels": torch.tensor([[5, 6, 7]])})
        >>> tokens, shifted = torch.tensor([[5, 6, 7]]), torch.tensor([[6, 7, -100]])
        >>> refuse_shifted_labels({"input_ids": tokens, "labels": shifted})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: labels: expected the tokens themselves, found each position's next token...
    """
    tokens, labels = inputs.get("input_ids"), inputs.get("labels")
    if not isinstance(tokens, Tensor) or not isinstance(labels, Tensor) or SHIFTED in inputs:
        return
    if labels.shape != tokens.shape or labels.ndim != 2:
        return
    valid, next_valid = labels != IGNORE_INDEX, labels[:, :-1] != IGNORE_INDEX
    is_same = (labels == tokens)[valid].all()
    is_next = (labels[:, :-1] == tokens[:, 1:])[next_valid].all() and next_valid.any()
    if is_next and not is_same:
        raise InputError(
            "labels: expected the tokens themselves, found each position's next token: they are shifted here, once; "
            f"pass them unshifted, or say that they are shifted already by the column {SHIFTED}"
        )


def causal_targets(inputs: Mapping[str, Any]) -> Int[Tensor, "batch length"]:
    """`next_token_targets` of a batch, or its `shift_labels` as they are.

    Raises:
        InputError: the batch has no labels of a class per token; the collator that makes them is named.

    Example:
        >>> import torch
        >>> causal_targets({"labels": torch.tensor([[5, 6, 7]])})
        tensor([[   6,    7, -100]])
    """
    if isinstance(shifted := inputs.get(SHIFTED), Tensor):
        return shifted
    labels = inputs.get("labels")
    if not isinstance(labels, Tensor) or labels.ndim != 2 or labels.is_floating_point():
        found = f"{labels.dtype} of shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else ", ".join(inputs)
        raise InputError(
            f"labels: expected the tokens of each text, -100 where none is to be learned, found {found}; "
            "DataCollatorForLanguageModeling(tokenizer, mlm=False) makes them"
        )
    positions, mask = (inputs.get(name) for name in ("position_ids", "attention_mask"))
    return next_token_targets(
        labels,
        # Positions along three axes, as those of images, and masks of every pair of tokens say nothing of documents.
        position_ids=positions if isinstance(positions, Tensor) and positions.ndim == 2 else None,
        attention_mask=mask if isinstance(mask, Tensor) and mask.shape == labels.shape else None,
    )
