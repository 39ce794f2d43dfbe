"""Language models, a tokenizer and texts small enough for a test, and the step of a plain loop to compare with."""

import copy

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from tpkd.teacher.cache.tokens import write_token_cache
from tpkd.teacher.cache.truncation import truncate
from tpkd.teacher.tokenizers import tokenizer_sha256

WORDS, LENGTH, PAD = 40, 12, 0
KEPT = 6
"""Classes that a truncated teacher keeps."""


def llama(seed, *, hidden=16, words=WORDS, **changes):
    torch.manual_seed(seed)
    settings = {
        "vocab_size": words,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,  # so that logits differ enough for a teacher to be blocked somewhere
        "pad_token_id": PAD,
        "bos_token_id": None,
        "eos_token_id": None,
        "attn_implementation": "sdpa",  # which keeps float64, and the documents of a packed row apart
    }
    return LlamaForCausalLM(LlamaConfig(**settings | changes))


def lora(model, **changes):
    """The network with adapters that are not zero."""
    torch.manual_seed(5)
    settings = {"r": 2, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", "init_lora_weights": False}
    return get_peft_model(model, LoraConfig(**settings | changes), autocast_adapter_dtype=False)


def masked_bert(seed, *, hidden=16, words=WORDS, **changes):
    torch.manual_seed(seed)
    settings = {
        "vocab_size": words,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.5,
        "pad_token_id": PAD,
    }
    return BertForMaskedLM(BertConfig(**settings | changes))


def tokenizer(words=WORDS, *, names=None):
    """A tokenizer that numbers these words as they come; number 0 pads."""
    names = names or ["<pad>", "<unk>", "<mask>", "<eos>", *(f"w{number}" for number in range(4, words))]
    core = Tokenizer(models.WordLevel({word: number for number, word in enumerate(names)}, unk_token=names[1]))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=names[0], unk_token=names[1], mask_token=names[2], eos_token=names[3]
    )


def documents(count=8, *, seed=0, shortest=3, longest=LENGTH, words=WORDS):
    """Texts of different lengths as lists of tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(4, words, (length,), generator=generator) for length in lengths]


def write_blocks(directory, teacher, *, count=8, dtype="float32", words=WORDS, tokenizer_=None):
    """A token cache of some texts of equal length, and the texts."""
    tokens = torch.stack(documents(count, shortest=LENGTH))
    with torch.no_grad():
        logits = teacher(input_ids=tokens).logits[:, :-1]
    kept = truncate(logits.flatten(0, 1), tokens[:, 1:].flatten(), KEPT)
    answers = {
        name: getattr(kept, name).reshape(count, LENGTH - 1, -1).squeeze(-1).numpy()
        for name in ("log_probs", "indices", "label_log_probs", "rest_log_probs")
    }
    settings = {"num_classes": words, "top_k": KEPT, "dtype": dtype, "documents": 100 + np.arange(count)}
    sha = None if tokenizer_ is None else tokenizer_sha256(tokenizer_)
    write_token_cache(directory, tokens.numpy(), answers, tokenizer=sha, **settings)
    return tokens


def masked_prompts(texts):
    """Labels of texts whose first tokens, more of them in later texts, are a prompt."""
    found = []
    for number, text in enumerate(texts):
        labels = text.clone()
        labels[: number % 4] = -100
        found.append(labels)
    return found


def rows(texts=None, labels=None):
    """A sample per document."""
    texts = documents() if texts is None else texts
    labels = masked_prompts(texts) if labels is None else labels
    return [{"input_ids": text, "labels": label} for text, label in zip(texts, labels, strict=True)]


def pad_right(samples, *, side="right"):
    """Samples of different lengths as a batch, by hand: no library takes part in what is expected."""
    longest = max(len(sample["input_ids"]) for sample in samples)

    def padded(values, fill):
        missing = torch.full((longest - len(values),), fill)
        return torch.cat([values, missing] if side == "right" else [missing, values])

    batch = {
        "input_ids": torch.stack([padded(sample["input_ids"], PAD) for sample in samples]),
        "labels": torch.stack([padded(sample["labels"], -100) for sample in samples]),
        "attention_mask": torch.stack([padded(torch.ones_like(sample["input_ids"]), 0) for sample in samples]),
    }
    for name in ("sample_id", "view_id"):
        if name in samples[0]:
            batch[name] = torch.tensor([sample[name] for sample in samples])
    return batch


def pack(samples):
    """All samples in one row, their positions counted anew."""
    lengths = [len(sample["input_ids"]) for sample in samples]
    return {
        "input_ids": torch.cat([sample["input_ids"] for sample in samples]).unsqueeze(0),
        "labels": torch.cat([sample["labels"] for sample in samples]).unsqueeze(0),
        "position_ids": torch.cat([torch.arange(length) for length in lengths]).unsqueeze(0),
    }


def masking_collator():
    return DataCollatorForLanguageModeling(tokenizer(), mlm=True, mlm_probability=0.5, seed=0)


def plain_step(student, teacher, samples, loss):
    """The gradients of the mean loss over all predicted tokens: every text alone, one token after the other.

    `loss(student_logits, teacher_logits, label)` is that of one position.
    """
    student = copy.deepcopy(student).train()
    total, count = 0.0, 0
    for sample in samples:
        text, labels = sample["input_ids"].unsqueeze(0), sample["labels"]
        logits = student(input_ids=text, use_cache=False).logits[0]
        with torch.no_grad():
            answers = teacher(input_ids=text, use_cache=False).logits[0]
        for place in range(1, len(labels)):
            if labels[place] != -100:
                total = total + loss(logits[place - 1], answers[place - 1], labels[place])
                count += 1
    (total / count).backward()
    return {name: each.grad for name, each in student.named_parameters() if each.grad is not None}
