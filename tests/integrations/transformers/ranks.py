"""One of two processes that share every batch, its rank in the environment as torchrun sets it.

    python ranks.py DIRECTORY

Leaves `rank-R.safetensors` (the gradients of the first step by case and parameter), `rank-R.json` (what was logged) and
`language-R.safetensors` (the gradients of language models).
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from safetensors.torch import save_file

from integrations.transformers.language_ranks import first_language_steps
from integrations.transformers.tiny import Gradients, softened, text_model, texts, token_model, tokens, trainer_for
from tpkd.integrations.transformers import MonitorCallback

CASES = {
    "texts": (text_model, texts()),
    "mixed texts, some ignored": (text_model, softened(texts(), ignored=0.4)),
    **{f"tokens, {share:.0%} ignored": (token_model, tokens(ignored=share)) for share in (0.0, 0.3, 0.5, 1.0)},
}


def first_steps(directory, batch_size, pieces):
    """Gradients by case and parameter, and the training entry and evaluation of each case."""
    gradients, logged = {}, {}
    for case, (model, data) in CASES.items():
        seen = Gradients()
        trainer = trainer_for(
            directory,
            model(0).double(),
            data,
            teacher=model(1).double(),
            callbacks=[seen, MonitorCallback()],
            arguments_={
                "per_device_train_batch_size": batch_size,
                # Over all processes one batch of 32: the Trainer's own mean is over batches, not over positions.
                "per_device_eval_batch_size": 32 // int(os.environ.get("WORLD_SIZE", "1")),
                "gradient_accumulation_steps": pieces,
            },
        )
        trainer.train()
        gradients |= {f"{case}/{name}": value for name, value in seen.steps[0].items()}
        logged[case] = trainer.state.log_history[0] | {"eval_loss": trainer.evaluate(data[:32])["eval_loss"]}
        check_wrapping(trainer)
    return gradients, logged


def check_wrapping(trainer):
    parallel = torch.nn.parallel.DistributedDataParallel
    assert isinstance(trainer.model_wrapped, parallel) == (trainer.args.world_size > 1)
    held = {id(module) for module in trainer.model_wrapped.modules()}
    assert not any(id(module) in held or isinstance(module, parallel) for module in trainer.teacher.model.modules())
    assert all(parameter.grad is None for parameter in trainer.teacher.model.parameters())


if __name__ == "__main__":
    place, rank = Path(sys.argv[1]), os.environ["RANK"]
    found, entries = first_steps(place / "run", 16, 2)
    save_file(found, place / f"rank-{rank}.safetensors")
    (place / f"rank-{rank}.json").write_text(json.dumps(entries))
    save_file(first_language_steps(place / "run", 2, 2), place / f"language-{rank}.safetensors")
    torch.distributed.destroy_process_group()
