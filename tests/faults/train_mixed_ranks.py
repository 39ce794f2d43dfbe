"""One of two processes that share batches of 33 mixed images, so that one of them has 16 and the other 17.

    python train_mixed_ranks.py DIRECTORY

Leaves `rank-R.safetensors`: what each step was given, what it left, and what the objective saw after it.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from safetensors.torch import save_file

from tpkd.geometry.top_k import TopK
from tpkd.objectives import register
from tpkd.training.run import assemble, end_processes, start_accelerator
from tpkd.training.step import _merge, take_step
from training.soft import SoftLabels, mixed_config

STEPS = (1, 2, 4)


def all_steps(directory):
    """By step and name: inputs and labels of this process, gradients, and the batch that `after_step` gets."""
    config = mixed_config(directory, batch_size=33, micro_batch_size=9)
    run = assemble(config, start_accelerator(config), directory)
    found = {}
    for step in STEPS:
        samples = run.batches[step - 1]
        outcome = take_step(run, step, samples)
        after = SoftLabels.shown[-1]
        module = run.accelerator.unwrap_model(run.module)
        values = {
            "inputs": samples.inputs,
            "labels": samples.labels,
            "loss": torch.tensor(outcome.loss),
            "after/labels": after.labels,
            "after/teacher": after.teacher_logits,
            **{f"gradient/{name}": parameter.grad for name, parameter in module.named_parameters()},
        }
        found |= {f"{step}/{name}": value.detach().clone().contiguous() for name, value in values.items()}
    return run, found


def merged_top_k(run, rank):
    """A truncated teacher of 2 positions in the first process and 3 in the second, of all processes."""
    rows = 2 + rank
    mine = TopK(
        torch.full((rows, 2), -1.0 - rank), torch.full((rows, 2), rank), rest_log_probs=torch.full((rows,), -3.0)
    )
    whole = _merge(run, "teacher_logits", [mine[:1], mine[1:]])
    assert whole.label_log_probs is None
    return {f"top_k/{name}": getattr(whole, name) for name in ("log_probs", "indices", "rest_log_probs")}


if __name__ == "__main__":
    place, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    register(SoftLabels)
    run, found = all_steps(place)
    save_file(found | merged_top_k(run, rank), place / f"rank-{rank}.safetensors")
    end_processes()
