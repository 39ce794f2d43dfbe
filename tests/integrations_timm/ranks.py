"""One of two processes that share a batch, its rank in the environment as torchrun sets it.

    python ranks.py DIRECTORY

Leaves `rank-R.safetensors`: the gradients by case and parameter.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import models_timm.conftest  # noqa: F401 (before timm: see there)

# isort: split
import torch
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel

from integrations_timm.tiny import CLASSES, gradients, images, labels, network
from tpkd.integrations.timm import DistillationTask

BATCH, PIECES = 32, 2


def targets(case):
    """Classes, or two labels an image with weights that differ from image to image."""
    if case == "classes":
        return labels(BATCH)
    weight = torch.rand(BATCH, 1, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    first, second = (torch.nn.functional.one_hot(labels(BATCH, seed), CLASSES) for seed in (1, 2))
    return weight * first + (1 - weight) * second


def step(rank=0, ranks=1, pieces=1):
    """Gradients of this process's share of the batch, accumulated as timm's loop does."""
    found = {}
    for case in ("classes", "set", "sum"):
        teacher = network(1, name="test_resnet")
        task = DistillationTask(network(0), teacher, mixed="sum" if case == "sum" else "set")
        student = task.get_trainable_module()
        if ranks > 1:
            task.prepare_distributed()
            assert isinstance(task.get_trainable_module(), DistributedDataParallel)
            assert not any(isinstance(module, DistributedDataParallel) for module in teacher.modules())
        task.train()
        shares = zip(images(BATCH)[rank::ranks].chunk(pieces), targets(case)[rank::ranks].chunk(pieces), strict=True)
        for piece, (inputs, target) in enumerate(shares, start=1):
            if piece < pieces:
                with task.no_sync():
                    (task(inputs, target)["loss"] / pieces).backward()
            else:
                (task(inputs, target)["loss"] / pieces).backward()
        assert all(parameter.grad is None for parameter in teacher.parameters())
        found |= {f"{case}/{name}": gradient for name, gradient in gradients(student).items()}
    return found


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    own = int(os.environ["RANK"])
    save_file(step(own, 2, PIECES), Path(sys.argv[1]) / f"rank-{own}.safetensors")
    torch.distributed.destroy_process_group()
