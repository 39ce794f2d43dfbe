"""A language model's step is that of a plain loop over its texts, however they are masked, packed, padded or cut."""

import copy

import pytest
import torch
from transformers import DataCollatorWithFlattening, GPT2Config, GPT2LMHeadModel, OPTConfig, OPTForCausalLM

from integrations.transformers.tiny import assert_close, first_gradients, trainer_for
from integrations.transformers.tiny_language import (
    WORDS,
    documents,
    llama,
    masked_bert,
    masking_collator,
    pack,
    pad_right,
    plain_step,
    rows,
)
from tpkd import tpkd_loss
from tpkd.objectives import Batch, create

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-13}


def step(directory, student, data, teacher, *, collate=pad_right, size=8, pieces=1, **options):
    arguments = {"per_device_train_batch_size": size, "gradient_accumulation_steps": pieces}
    arguments |= options.pop("arguments_", {})
    return first_gradients(
        directory, student, data, teacher=teacher, data_collator=collate, arguments_=arguments, **options
    )


@pytest.fixture
def pair():
    return llama(0).double(), llama(1, hidden=24).double().eval()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("linear_head", [False, True], ids=["dense", "linear"])
def test_masks_accumulation_and_packing_give_the_gradient_of_a_plain_loop(tmp_path, dtype, linear_head):
    student, teacher, data = llama(0).to(dtype), llama(1, hidden=24).to(dtype).eval(), rows()
    expected = plain_step(student, teacher, data, tpkd_loss)
    ways = {
        "1 x 8": {},
        "4 x 2": {"size": 2, "pieces": 4},
        "packed": {"collate": pack},
        "packed, 4 x 2": {"collate": pack, "size": 2, "pieces": 4},
    }
    if dtype == torch.float32:  # in float64 the network itself returns nan where all is padding
        ways["left"] = {"collate": lambda samples: pad_right(samples, side="left")}
    for name, way in ways.items():
        found = step(tmp_path, copy.deepcopy(student), data, teacher, linear_head=linear_head, **way)
        try:
            assert_close(found, expected, TOLERANCE[dtype])
        except AssertionError as error:
            raise AssertionError(name) from error


def test_transformers_own_packing_collator_gives_it_too(tmp_path, pair):
    student, teacher = pair
    data = rows()
    expected = plain_step(student, teacher, data, tpkd_loss)
    collate = DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)
    as_lists = [{name: values.tolist() for name, values in sample.items()} for sample in data]
    assert_close(step(tmp_path, student, as_lists, teacher, collate=collate), expected, 1e-13)


@pytest.mark.parametrize("linear_head", [False, True], ids=["dense", "linear"])
def test_the_teachers_largest_classes_taken_online(tmp_path, pair, linear_head):
    from tpkd.objectives import top_k_tpkd_loss

    def truncated(student, teacher, label):
        log_probs = teacher.log_softmax(-1)
        top = log_probs.topk(5)
        return top_k_tpkd_loss(
            student.unsqueeze(0),
            top.values.unsqueeze(0),
            top.indices.unsqueeze(0),
            label.reshape(1),
            label_log_probs=log_probs[label].reshape(1),
        )

    student, teacher = pair
    data = rows()
    expected = plain_step(student, teacher, data, truncated)
    options = {"top_k": 5, "linear_head": linear_head}
    assert_close(step(tmp_path, copy.deepcopy(student), data, teacher, **options), expected, 1e-12)
    # The rest as one minus what is kept, or summed: they differ by rounding.
    assert_close(step(tmp_path, student, data, teacher, collate=pack, **options), expected, 1e-12)


@pytest.mark.parametrize("name", ["ce", "kd", "dkd", "tpkd-no-projection"])
def test_other_objectives_of_tokens(tmp_path, pair, name):
    student, teacher = pair
    objective = create(name)

    def loss(student, teacher, label):
        batch = {"student_logits": student.unsqueeze(0), "teacher_logits": teacher.unsqueeze(0)}
        return sum(objective.losses(Batch(**batch, labels=label.reshape(1), epoch=1)).values())

    expected = plain_step(student, teacher, rows(), loss)
    assert_close(step(tmp_path, student, rows(), teacher, objective=name), expected, 1e-13)


def test_tied_weights_and_a_bias(tmp_path):
    student, teacher = llama(0, tie_word_embeddings=True).double(), llama(1).double().eval()
    expected = plain_step(student, teacher, rows(), tpkd_loss)
    assert_close(step(tmp_path, student, rows(), teacher, linear_head=True), expected, 1e-13)
    student = llama(0).double()
    student.lm_head.bias = torch.nn.Parameter(torch.linspace(-1, 1, student.lm_head.out_features).double())
    expected = plain_step(student, teacher, rows(), tpkd_loss)
    assert "lm_head.bias" in expected
    assert_close(step(tmp_path, student, rows(), teacher, linear_head=True), expected, 1e-13)


def gpt2(seed):
    torch.manual_seed(seed)
    sizes = {"vocab_size": WORDS, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "initializer_range": 0.3}
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
    return GPT2LMHeadModel(GPT2Config(**sizes, **quiet))


def opt(seed):
    torch.manual_seed(seed)
    sizes = {"vocab_size": WORDS, "hidden_size": 16, "ffn_dim": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return OPTForCausalLM(OPTConfig(**sizes, max_position_embeddings=64, dropout=0.0, init_std=0.3, pad_token_id=0))


@pytest.mark.parametrize("family", [gpt2, opt])
def test_other_families(tmp_path, family):
    """Of GPT-2 the Trainer itself does not know that its loss shifts labels."""
    student, teacher = family(0).double(), family(1).double().eval()
    expected = plain_step(student, teacher, rows(), tpkd_loss)
    for linear_head in (False, True):
        found = step(tmp_path, copy.deepcopy(student), rows(), teacher, linear_head=linear_head, size=2, pieces=4)
        assert_close(found, expected, 1e-12)


@pytest.mark.parametrize("linear_head", [False, True], ids=["dense", "linear"])
def test_masked_tokens_are_not_shifted(tmp_path, linear_head):
    student, teacher = masked_bert(0).double(), masked_bert(1, hidden=24).double().eval()
    texts = documents(shortest=12)
    batch = masking_collator()([{"input_ids": text} for text in texts])
    assert (batch["labels"] != -100).sum() > 20
    data = [{name: values[row] for name, values in batch.items()} for row in range(len(texts))]
    own = copy.deepcopy(student)
    logits = own(input_ids=batch["input_ids"]).logits
    with torch.no_grad():
        answers = teacher(input_ids=batch["input_ids"]).logits
    tpkd_loss(logits.flatten(0, 1), answers.flatten(0, 1), batch["labels"].flatten()).backward()
    expected = {name: each.grad for name, each in own.named_parameters() if each.grad is not None}
    for size, pieces in ((8, 1), (2, 4)):
        options = {"collate": None, "size": size, "pieces": pieces, "linear_head": linear_head}
        assert_close(step(tmp_path, copy.deepcopy(student), data, teacher, **options), expected, 1e-13)


@pytest.mark.parametrize("linear_head", [False, True], ids=["dense", "linear"])
def test_gradient_checkpointing_changes_nothing(tmp_path, pair, linear_head):
    student, teacher = pair
    expected = plain_step(student, teacher, rows(), tpkd_loss)
    arguments = {"gradient_checkpointing": True}
    found = step(tmp_path, student, rows(), teacher, linear_head=linear_head, arguments_=arguments)
    assert_close(found, expected, 1e-13)


def test_mixed_precision_from_features_and_from_logits(tmp_path):
    student, teacher = llama(0), llama(1)
    options = {"arguments_": {"bf16": True}}
    dense, linear = (
        step(tmp_path, copy.deepcopy(student), rows(), teacher, linear_head=linear_head, **options)
        for linear_head in (False, True)
    )
    exact = step(tmp_path, copy.deepcopy(student), rows(), teacher)
    for name, gradient in dense.items():
        # Rounded to 8 bits, in another order.
        size = float(exact[name].abs().max())
        torch.testing.assert_close(linear[name], gradient, rtol=0.05, atol=0.02 * size)
        torch.testing.assert_close(gradient, exact[name], rtol=0.1, atol=0.05 * size)


@pytest.mark.parametrize("top_k", [None, 6])
def test_weights_in_half_precision_from_features_and_from_logits(tmp_path, top_k):
    student, teacher = llama(0).bfloat16(), llama(1).bfloat16()
    dense, linear = (
        step(tmp_path, copy.deepcopy(student), rows(), teacher, linear_head=linear_head, top_k=top_k)
        for linear_head in (False, True)
    )
    for name, gradient in dense.items():
        assert gradient.dtype == torch.bfloat16
        size = float(gradient.abs().max())
        torch.testing.assert_close(linear[name], gradient, rtol=0.05, atol=0.02 * size)  # rounded to 8 bits


@pytest.mark.parametrize("linear_head", [False, True], ids=["dense", "linear"])
def test_a_micro_batch_without_a_target_counts_nothing(tmp_path, pair, linear_head):
    """Prompts alone, and texts of one token: zero, not nan."""
    student, teacher = pair
    data = rows()
    for sample in data[:2]:
        sample["labels"] = torch.full_like(sample["labels"], -100)
    expected = plain_step(student, teacher, data, tpkd_loss)
    found = step(tmp_path, student, data, teacher, size=2, pieces=4, linear_head=linear_head)
    assert_close(found, expected, 1e-13)


@pytest.mark.parametrize("linear_head", [False, True], ids=["dense", "linear"])
def test_evaluation_is_the_cross_entropy_of_next_tokens(tmp_path, pair, linear_head):
    student, teacher = pair
    data = rows()
    trainer = trainer_for(tmp_path, student, data, teacher=teacher, data_collator=pad_right, linear_head=linear_head)
    found = trainer.evaluate(data)["eval_loss"]
    batch = pad_right(data)
    assert found == pytest.approx(float(student(**batch).loss.detach()), rel=1e-6)  # it is logged in float32
