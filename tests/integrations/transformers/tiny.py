"""Networks and data small enough for a test: no dropout unless asked for, so that a gradient has one value."""

import torch
from torch.nn.functional import one_hot
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    ResNetConfig,
    ResNetForImageClassification,
    TrainerCallback,
    TrainingArguments,
)

from tpkd.integrations.transformers import DistillationTrainer
from tpkd.objectives import create, names

CLASSES, WORDS, LENGTH = 5, 30, 6
SEPARABLE = tuple(name for name in names() if create(name).needs <= {"labels", "teacher_logits", "epoch"})


def text_model(seed, kind=BertForSequenceClassification, *, hidden=16, dropout=0.0, **changes):
    torch.manual_seed(seed)
    settings = {
        "vocab_size": WORDS,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "initializer_range": 0.5,  # so that logits differ enough for a teacher to be blocked somewhere
        "num_labels": CLASSES,
    }
    return kind(BertConfig(**settings | changes))


def token_model(seed, **options):
    return text_model(seed, BertForTokenClassification, **options)


def image_model(seed, width=8):
    torch.manual_seed(seed)
    config = ResNetConfig(
        num_channels=1, embedding_size=width, hidden_sizes=[width], depths=[1], layer_type="basic", num_labels=CLASSES
    )
    return ResNetForImageClassification(config)


def texts(count=64, *, seed=0, ids=False):
    words = torch.randint(1, WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(seed))
    samples = [{"input_ids": row, "labels": int(row[0]) % CLASSES} for row in words]
    return [sample | {"sample_id": 100 + number} for number, sample in enumerate(samples)] if ids else samples


def tokens(count=64, *, ignored=0.3, seed=0):
    """Texts with a label a word; the shares of ignored labels differ from sample to sample."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(1, WORDS, (count, LENGTH), generator=generator)
    chance = ignored * torch.linspace(0.2, 1.8, count).unsqueeze(1) if ignored < 1 else torch.ones(count, 1)
    labels = torch.where(torch.rand(count, LENGTH, generator=generator) < chance, -100, words % CLASSES)
    return [{"input_ids": row, "labels": label} for row, label in zip(words, labels, strict=True)]


def images(count=64, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randn(count, 1, 8, 8, generator=generator)
    return [{"pixel_values": each, "labels": number % CLASSES} for number, each in enumerate(pixels)]


def softened(samples, *, ignored=0.0, seed=0):
    """The samples with mixtures of two labels; the share of rows without any grows along the data."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for number, sample in enumerate(samples):
        labels = torch.as_tensor(sample["labels"])
        weight = torch.rand(*labels.shape, 1, generator=generator, dtype=torch.float64)
        other = (labels + torch.randint(1, CLASSES, labels.shape, generator=generator)) % CLASSES
        shares = weight * one_hot(labels, CLASSES) + (1 - weight) * one_hot(other, CLASSES)
        kept = torch.rand(*labels.shape, 1, generator=generator) >= 2 * ignored * number / len(samples)
        found.append(sample | {"labels": shares * kept})
    return found


def collate(samples):
    """All samples as one batch, in order."""
    return {name: torch.stack([torch.as_tensor(each[name]) for each in samples]) for name in samples[0]}


class Gradients(TrainerCallback):
    """The gradients of each step, as the optimiser is about to see them."""

    def __init__(self):
        self.steps = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        unwrapped = getattr(model, "module", model)
        self.steps.append(
            {name: each.grad.clone() for name, each in unwrapped.named_parameters() if each.grad is not None}
        )


def arguments(directory, **changes):
    settings = {
        "per_device_train_batch_size": 64,
        "per_device_eval_batch_size": 16,
        "max_steps": 1,
        "max_grad_norm": 0.0,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return TrainingArguments(str(directory), **settings | changes)


def trainer_for(directory, student, data, *, callbacks=(), arguments_=None, **options):
    args = arguments(directory, **(arguments_ or {}))
    return DistillationTrainer(student, args, train_dataset=data, callbacks=list(callbacks), **options)


def first_gradients(directory, student, data, *, arguments_=None, **options):
    """The gradients of the first step by parameter name."""
    seen = Gradients()
    trainer_for(directory, student, data, callbacks=[seen], arguments_=arguments_, **options).train()
    return seen.steps[0]


def assert_close(found, expected, tolerance):
    assert found.keys() == expected.keys()
    worst = {name: float((found[name] - expected[name]).abs().max()) for name in expected}
    assert max(worst.values()) <= tolerance, {name: value for name, value in worst.items() if value > tolerance}
