"""Distillation in TRL's `SFTTrainer`: its chat templates, packing and adapters, our objectives and teachers.

`pip install 'tpkd[trl]'`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tpkd.errors import InputError, extra
from tpkd.integrations.transformers import SAMPLE_ID, VIEW_ID, DistillationTrainer
from tpkd.teacher.teacher import OnlineTeacher

with extra("trl"):
    from trl import SFTTrainer


class DistillationSFTTrainer(DistillationTrainer, SFTTrainer):  # type: ignore[misc]
    """TRL's `SFTTrainer` with a teacher.

    Everything before the loss is TRL's: formats of data, chat templates, prompts and completions, packing,
    `peft_config`. The loss, its count and `eval_loss` are those of `DistillationTrainer`. TRL's log of entropy and
    token accuracy, which its own loss computes on the way, is left out.

    A token cache is read by the columns `sample_id` and `view_id` of data that are tokenized already, as
    `TokenCache.to_datasets` has them; TRL's own packing would mix the blocks it was built of, and is refused then.

    Args:
        *args: those of `SFTTrainer`.
        **kwargs: those of `SFTTrainer` and of `DistillationTrainer`: `teacher`, `objective`, `top_k`, `linear_head`, ….

    Raises:
        InputError: what `DistillationTrainer` refuses, a loss of TRL's other than `"nll"`, or a cache with packing.

    Example:
        >>> issubclass(DistillationSFTTrainer, SFTTrainer)
        True
    """

    data_collator: Any  # the Trainer's own

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Set up TRL's trainer, then objective and teacher."""
        super().__init__(*args, **kwargs)
        if self.args.loss_type != "nll":
            raise InputError(
                f"loss_type: expected 'nll', got {self.args.loss_type!r}: the objective is the loss; leave it out, and "
                "say linear_head=True where the logits should never be held whole"
            )
        if self.teacher is not None and not isinstance(self.teacher, OnlineTeacher):
            if self.args.packing or self.padding_free:
                raise InputError(
                    "packing: expected False, and padding_free too: a token cache knows the blocks it was built of, "
                    "which TRL would pack anew; train on those of the cache (TokenCache.to_datasets)"
                )
            # TRL's collator keeps the columns it knows.
            self.data_collator = KeepIds(self.data_collator)


class KeepIds:
    """A collator that keeps `sample_id` and `view_id` beside what another one makes of the samples.

    Example:
        >>> collate = KeepIds(lambda samples: {"input_ids": torch.tensor([sample["input_ids"] for sample in samples])})
        >>> collate([{"input_ids": [1, 2], "sample_id": 7}])
        {'input_ids': tensor([[1, 2]]), 'sample_id': tensor([7])}
    """

    def __init__(self, collator: Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]]) -> None:
        """Keep the other collator."""
        self.collator = collator

    def __call__(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The batch of the other collator, with the ids of its samples."""
        kept = {name: _column(samples, name) for name in (SAMPLE_ID, VIEW_ID) if name in samples[0]}
        return dict(self.collator(samples)) | kept


def _column(samples: Sequence[Mapping[str, Any]], name: str) -> Tensor:
    return torch.tensor([int(sample[name]) for sample in samples])
