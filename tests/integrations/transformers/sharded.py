"""A step of a language model whose weights are split over two processes, by the features of its head."""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig, LlamaForCausalLM

from tpkd.integrations.output_head import feature_loss, feature_top_k, head_computes, output_head
from tpkd.objectives.tpkd import TPKD

CASES = {"whole": (False, None), "top 5": (False, 5), "top 5, tied": (True, 5)}


def gradients(case: str, ranks: list[int], *, sharded: bool) -> dict[str, Tensor]:
    """Of the mean loss of the texts of some ranks."""
    tied, k = CASES[case]
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=257, tie_word_embeddings=tied, **shape)).double()
    if sharded:
        mesh = init_device_mesh("cpu", (2,))
        for part in (*model.model.layers, model):
            fully_shard(part, mesh=mesh)
    for rank in ranks:
        generator = torch.Generator().manual_seed(rank)
        tokens, targets = torch.randint(257, (2, 2, 8), generator=generator)
        features, teacher = torch.randn(2, 8, 4, generator=generator).double(), torch.nn.Linear(4, 257).double()
        torch.nn.init.uniform_(teacher.weight, generator=generator)
        torch.nn.init.zeros_(teacher.bias)
        answers = teacher(features).detach() if k is None else feature_top_k(features, teacher, targets, k)
        head = output_head(model)

        def loss(student: Tensor, head=head, answers=answers, targets=targets) -> Tensor:
            return feature_loss(TPKD(temperature=2.0), student, head, answers, targets, None)

        with head_computes(head, loss):
            returned = model(input_ids=tokens).logits
        (returned / len(ranks)).backward()
    whole = {name: weight.grad for name, weight in model.named_parameters()}
    return {name: grad.full_tensor() if isinstance(grad, DTensor) else grad for name, grad in whole.items()}


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    found = {f"{case}/{name}": grad for case in CASES for name, grad in gradients(case, [rank], sharded=True).items()}
    save_file(found, Path(sys.argv[1]) / f"sharded-{rank}.safetensors")
    distributed.destroy_process_group()
