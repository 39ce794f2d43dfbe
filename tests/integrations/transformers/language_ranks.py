"""The first steps of language models, in one process or in several."""

import os

import torch

from integrations.transformers.tiny import Gradients, trainer_for
from integrations.transformers.tiny_language import llama, lora, pack, pad_right, rows, write_blocks
from tpkd.teacher.cache.tokens import open_token_cache

CASES = {
    "logits": {"data_collator": pad_right},
    "features": {"data_collator": pad_right, "linear_head": True, "top_k": 6},
    "features, checkpointing": {"data_collator": pad_right, "linear_head": True},
    "features, packed, tied": {"data_collator": pack, "linear_head": True},
    "features, adapters": {"data_collator": pad_right, "linear_head": True},
    "logits, cache": {"data_collator": pad_right},
    "features, cache": {"data_collator": pad_right, "linear_head": True},
}
"""By default the Trainer tells its wrapper to look for unused parameters, and not where it uses checkpointing."""


def first_language_steps(directory, batch_size, pieces):
    """Gradients by case and parameter."""
    gradients = {}
    place = directory / f"cache-{os.environ.get('RANK', 'alone')}"
    write_blocks(place, llama(1).double())
    cache = open_token_cache(place)
    for case, options in CASES.items():
        seen, student = Gradients(), llama(0, tie_word_embeddings="tied" in case).double()
        arguments = {
            "per_device_train_batch_size": batch_size,
            "gradient_accumulation_steps": pieces,
            "gradient_checkpointing": "checkpointing" in case,
        }
        trainer = trainer_for(
            directory,
            lora(student, modules_to_save=["lm_head"]) if "adapters" in case else student,
            list(cache.dataset()) if "cache" in case else rows(),
            teacher=cache if "cache" in case else llama(1).double(),
            callbacks=[seen],
            arguments_=arguments,
            **options,
        )
        trainer.train()
        wrapped = isinstance(trainer.model_wrapped, torch.nn.parallel.DistributedDataParallel)
        assert wrapped == (trainer.args.world_size > 1)
        gradients |= {f"{case}/{name}": value for name, value in seen.steps[0].items()}
    return gradients
