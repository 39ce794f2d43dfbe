"""A language model made on the spot: a random Llama of three layers, its tokeniser, and a text."""

import json
from pathlib import Path

import torch

from tpkd.config.loading import resolve_tokens_config

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "the",
    "mat",
    ".",
    "a",
    "dog",
    "ran",
    ",",
    "and",
    "the",
    "cat",
    "slept",
    "while",
    "it",
    "rained",
    "in",
    "the",
    "old",
    "town",
]
TITLE = "= doc .* ="


def write_model(folder: Path, *, seed: int = 0, vocabulary: int = 300, layers: int = 3, padding: int = 0) -> Path:
    """A transformers folder with weights and tokeniser; `padding` rows of its table are no tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>")
    fast.save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(fast) + padding,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def permute_tokens(folder: Path) -> Path:
    """Exchange the numbers of two tokens in the tokeniser of a transformers folder."""
    path = folder / "tokenizer.json"
    state = json.loads(path.read_text())
    numbers = state["model"]["vocab"]
    numbers["a"], numbers["b"] = numbers["b"], numbers["a"]
    path.write_text(json.dumps(state))
    return folder


def write_text(path: Path, documents: int = 12, seed: int = 0) -> Path:
    """Documents of different lengths, each with a title."""
    draw = torch.Generator().manual_seed(seed)
    parts = []
    for number in range(documents):
        length = int(torch.randint(3, 60, (), generator=draw))
        words = [WORDS[int(torch.randint(len(WORDS), (), generator=draw))] for _ in range(length)]
        parts.append(f"= doc {number} =\n{' '.join(words)}\n")
    path.write_text("".join(parts))
    return path


def tiny_config(root: Path, *overrides, **sections):
    """The configuration of a cache and a run in a folder that `write_model` and `write_text` filled."""
    data = {
        "documents": {"path": str(root / "text.txt"), "begin": TITLE},
        "packing": {"length": 16},
        "teacher": {"model": f"hf:{root / 'model'}", "cache": str(root / "cache"), "top_k": 8, "batch_size": 3},
        **sections,
    }
    return resolve_tokens_config(data, overrides)


def fill(root: Path) -> Path:
    """A folder with the model and the text."""
    write_model(root / "model")
    write_text(root / "text.txt")
    return root
