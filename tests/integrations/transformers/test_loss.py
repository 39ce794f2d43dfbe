"""The gradient of a Trainer's step is that of the objective on the whole batch, however the batch is cut."""

import copy

import pytest
import torch
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding, PreTrainedTokenizerFast

from integrations.transformers.tiny import (
    SEPARABLE,
    assert_close,
    collate,
    first_gradients,
    image_model,
    images,
    text_model,
    texts,
    token_model,
    tokens,
    trainer_for,
)
from tpkd import kd_loss, tpkd_loss
from tpkd.objectives import Batch, create

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-13}
"""The same sums in another order."""


def own_loop(student, teacher, data, objective):
    """The gradients of plain PyTorch: one batch, one backward."""
    student, batch = copy.deepcopy(student).train(), collate(data)
    labels = batch.pop("labels")
    with torch.no_grad():
        teacher_logits = teacher(**batch).logits
    logits = student(**batch).logits
    if logits.ndim == 3:
        logits, teacher_logits, labels = logits.flatten(0, 1), teacher_logits.flatten(0, 1), labels.flatten()
    losses = objective.losses(Batch(student_logits=logits, teacher_logits=teacher_logits, labels=labels, epoch=1))
    sum(losses.values()).backward()
    return {name: each.grad for name, each in student.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("name", SEPARABLE)
def test_every_objective_gives_the_gradient_of_our_own_loop(tmp_path, name):
    student, teacher, data = text_model(0), text_model(1, hidden=32).eval(), texts()
    expected = own_loop(student, teacher, data, create(name))
    assert_close(first_gradients(tmp_path, student, data, teacher=teacher, objective=name), expected, 1e-6)


@pytest.mark.parametrize(
    ("model", "data"), [(token_model, tokens()), (image_model, images())], ids=["tokens", "images"]
)
def test_tokens_and_images_give_the_gradient_of_our_own_loop(tmp_path, model, data):
    student, teacher = model(0), model(1).eval()
    expected = own_loop(student, teacher, data, create("tpkd"))
    assert_close(first_gradients(tmp_path, student, data, teacher=teacher), expected, 1e-6)


def test_settings_and_instances_reach_the_loss(tmp_path):
    student, teacher, batch = text_model(0).eval(), text_model(1).eval(), collate(texts())
    labels = batch["labels"]
    logits, teacher_logits = (model(input_ids=batch["input_ids"]).logits for model in (student, teacher))
    by_name = trainer_for(
        tmp_path, student, texts(), teacher=teacher, objective="kd", objective_settings={"temperature": 2.0}
    )
    torch.testing.assert_close(
        by_name.compute_loss(student, batch), kd_loss(logits, teacher_logits, labels, temperature=2.0)
    )
    instance = trainer_for(tmp_path, student, texts(), teacher=teacher, objective=create("tpkd", beta=0.1))
    torch.testing.assert_close(
        instance.compute_loss(student, batch), tpkd_loss(logits, teacher_logits, labels, beta=0.1)
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("ignored", [0.0, 0.3, 0.5, 1.0])
def test_one_batch_of_64_is_four_of_16_under_any_mask(tmp_path, ignored, dtype):
    data, teacher = tokens(ignored=ignored), token_model(1).to(dtype)
    whole, cut = (
        first_gradients(
            tmp_path,
            token_model(0).to(dtype),
            data,
            teacher=teacher,
            arguments_={"per_device_train_batch_size": 64 // pieces, "gradient_accumulation_steps": pieces},
        )
        for pieces in (1, 4)
    )
    assert_close(cut, whole, TOLERANCE[dtype])
    assert any(gradient.any() for gradient in whole.values()) == (ignored < 1)


def test_an_epoch_that_ends_within_a_step_is_exact_too(tmp_path):
    """40 samples are two micro-batches of 16 and one of 8, though four were asked for."""
    data, teacher = texts(40), text_model(1).double()
    cut = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}
    found = first_gradients(tmp_path, text_model(0).double(), data, teacher=teacher, arguments_=cut)
    expected = own_loop(text_model(0).double(), teacher, data, create("tpkd"))
    assert_close(found, expected, 1e-13)


def test_mixed_precision_gives_the_gradient_of_bfloat16_logits(tmp_path):
    student, teacher, data = text_model(0), text_model(1), texts()
    found = first_gradients(tmp_path, student, data, teacher=teacher, arguments_={"bf16": True})
    student, batch = text_model(0), collate(data)
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            teacher_logits = teacher(input_ids=batch["input_ids"]).logits
        logits = student(input_ids=batch["input_ids"]).logits
    assert logits.dtype == torch.bfloat16
    tpkd_loss(logits.float(), teacher_logits.float(), batch["labels"]).backward()
    # Samples stand in another order, and a gradient of bfloat16 activations is summed with 8 bits.
    for name, each in student.named_parameters():
        torch.testing.assert_close(found[name], each.grad, rtol=0.05, atol=0.01 * float(each.grad.abs().max()) + 1e-5)


def test_the_warm_up_of_dkd_counts_epochs_of_the_trainer(tmp_path):
    student, teacher, data = text_model(0), text_model(1), texts(32)
    epochs = []

    class Recording(type(create("dkd"))):
        def compute_losses(self, batch):
            epochs.append(batch.epoch)
            return super().compute_losses(batch)

    settings = {"max_steps": -1, "num_train_epochs": 3, "per_device_train_batch_size": 16}
    trainer_for(tmp_path, student, data, teacher=teacher, objective=Recording(), arguments_=settings).train()
    assert epochs == [1, 1, 2, 2, 3, 3]


def test_imitation_alone_needs_no_labels(tmp_path):
    data = [{"input_ids": sample["input_ids"]} for sample in texts()]
    student, teacher = text_model(0).double(), text_model(1).double().eval()
    cut = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}
    found = first_gradients(
        tmp_path, text_model(0).double(), data, teacher=teacher, objective="kl-dist", arguments_=cut
    )
    assert_close(found, own_loop(student, teacher, texts(), create("kl-dist")), 1e-13)


def test_padding_collators_keep_what_is_needed(tmp_path):
    """Sentences of different lengths, through the collators people use."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = Tokenizer(WordLevel({"[PAD]": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
    lengths = [2 + number % 4 for number in range(16)]
    for model, labels, collator in (
        (text_model, [1] * 16, DataCollatorWithPadding(tokenizer)),
        (token_model, [[2] * length for length in lengths], DataCollatorForTokenClassification(tokenizer)),
    ):
        rows = zip(lengths, labels, strict=True)
        data = [{"input_ids": [3] * length, "attention_mask": [1] * length, "labels": label} for length, label in rows]
        pieces = [
            {"per_device_train_batch_size": 16 // count, "gradient_accumulation_steps": count} for count in (1, 4)
        ]
        whole, cut = (
            first_gradients(
                tmp_path, model(0).double(), data, teacher=model(1).double(), data_collator=collator, arguments_=piece
            )
            for piece in pieces
        )
        assert_close(cut, whole, 1e-13)
