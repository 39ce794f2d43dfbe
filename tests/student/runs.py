"""Small finished runs to load, predict with and export: digits, texts and vectors, each trained once per process."""

import functools
import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from tpkd.config.loading import resolve_config
from tpkd.training.loop import train
from training.tiny import make_config, online

TEXTS = {"pay": "pay my bill now", "weather": "is it sunny today", "music": "play a song please"}
TINY_BERT = {"layers": 1, "hidden_size": 16, "heads": 2, "vocab_size": 60, "max_positions": 16}


@functools.cache
def _home():
    return Path(tempfile.mkdtemp(prefix="tpkd-student-"))


@functools.cache
def _digits():
    config = online(make_config(_home() / "digits", epochs=2))
    return train_in(_home() / "digits" / "run", config)


@functools.cache
def _texts(model, options):
    folder = _home() / f"texts-{abs(hash((model, options)))}"
    data = table(folder / "data", "csv")
    settings = {
        "output": str(folder / "run"),
        "data": {"name": f"csv:{data}"},
        "student": {"model": model, "options": json.loads(options), "head": "random"},
        "text": {"max_length": 8},
        "objective": "ce",
        "optimizer": {"name": "sgd", "learning_rate": 0.05},
        "epochs": 2,
        "batch_size": 8,
        "tensorboard": False,
        "device": "cpu",
    }
    return train_in(folder / "run", resolve_config(settings))


def train_in(folder, config):
    train(config, folder)
    return folder


def table(folder, suffix, rows=6):
    """`train.csv` and `test.csv` of three classes."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", rows), ("test", rows // 2)):
        lines = [f"{text} {number},{label}" for number in range(count) for label, text in TEXTS.items()]
        (folder / f"{split}.{suffix}").write_text("text,label\n" + "\n".join(lines) + "\n")
    return folder


def copied(run, folder):
    """A copy that a test may damage."""
    return Path(shutil.copytree(run, folder / "run"))


def digits_run(folder):
    return copied(_digits(), folder)


def text_run(folder, model="builtin:bert", **options):
    return copied(_texts(model, json.dumps(options or TINY_BERT, sort_keys=True)), folder)


def rewrite(path, change, *, keep_names=True):
    """Change the tensors of a safetensors file, a dict in and a dict out."""
    with safe_open(path, framework="pt") as archive:
        tensors = {name: archive.get_tensor(name).clone() for name in archive.keys()}  # noqa: SIM118
        metadata = archive.metadata()
    save_file(change(tensors), path, metadata=metadata if keep_names else None)


def tensors_of(path):
    with safe_open(path, framework="pt") as archive:
        return {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118


def tiny_encoder(folder, kind="bert"):
    """A transformers folder with a tokenizer: random weights, no head."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    words = sorted({word for text in TEXTS.values() for word in text.split()} | {str(number) for number in range(9)})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*special, *words])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    fast.save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = AutoConfig.for_model(kind, vocab_size=40, max_position_embeddings=20, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(folder)
    return folder
