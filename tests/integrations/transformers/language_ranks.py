"""The first steps of language models, in one process or in several."""

import torch

from integrations.transformers.tiny import Gradients, trainer_for
from integrations.transformers.tiny_language import llama, pack, pad_right, rows

CASES = {
    "logits": {"data_collator": pad_right},
    "features": {"data_collator": pad_right, "linear_head": True, "top_k": 6},
    "features, checkpointing": {"data_collator": pad_right, "linear_head": True},
    "features, packed, tied": {"data_collator": pack, "linear_head": True},
}
"""By default the Trainer tells its wrapper to look for unused parameters, and not where it uses checkpointing."""


def first_language_steps(directory, batch_size, pieces):
    """Gradients by case and parameter."""
    gradients = {}
    for case, options in CASES.items():
        seen = Gradients()
        arguments = {
            "per_device_train_batch_size": batch_size,
            "gradient_accumulation_steps": pieces,
            "gradient_checkpointing": "checkpointing" in case,
        }
        trainer = trainer_for(
            directory,
            llama(0, tie_word_embeddings="tied" in case).double(),
            rows(),
            teacher=llama(1).double(),
            callbacks=[seen],
            arguments_=arguments,
            **options,
        )
        trainer.train()
        wrapped = isinstance(trainer.model_wrapped, torch.nn.parallel.DistributedDataParallel)
        assert wrapped == (trainer.args.world_size > 1)
        gradients |= {f"{case}/{name}": value for name, value in seen.steps[0].items()}
    return gradients
