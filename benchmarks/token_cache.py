"""What a token cache costs beside the bare teacher's forward passes; `python -m benchmarks.token_cache`."""

import tempfile

import numpy as np
import torch
from benchmarks.timing import paired_ratio

from tpkd.errors import extra
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows

MOST_BUILD = 1 / 0.9
"""A build may take this many times the bare forward passes."""
VOCABULARY, LENGTH, TOP_K = 49_152, 256, 64


def build_ratio(*, blocks: int = 8, batch: int = 4, pairs: int = 3) -> float:
    """Time of a build over that of the same forward passes: a random Llama of the shape of SmolLM2-135M, in float32."""
    with extra("text"):
        from transformers import LlamaConfig, LlamaForCausalLM
    shape = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    teacher = LlamaForCausalLM(shape).eval()
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (blocks, LENGTH))
    rows = CacheRows(
        np.arange(blocks), np.zeros(blocks, np.int64), lambda a, b: torch.from_numpy(tokens[a:b]), tokens=tokens
    )
    recipe = CacheRecipe("llama", "random", {}, None, VOCABULARY, top_k=TOP_K, positions=LENGTH - 1)

    def forward(inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": teacher(input_ids=inputs[:, :-1], use_cache=False).logits}

    def bare() -> None:
        with torch.inference_mode():
            for start in range(0, blocks, batch):
                forward(rows.inputs(start, start + batch))

    def build() -> None:
        with tempfile.TemporaryDirectory() as directory:
            build_cache(directory, rows, forward, recipe, block_rows=batch)

    return paired_ratio(build, bare, pairs=pairs)


def rows() -> list[tuple[str, float, float]]:
    """(what, measured, most) for each promise."""
    name = "build of a token cache, top 64 of 49,152, over the bare teacher"
    return [(name, build_ratio(), MOST_BUILD)]


if __name__ == "__main__":
    for what, measured, most in rows():
        print(f"{what}: {measured:.3f}, at most {most:.3f}")
