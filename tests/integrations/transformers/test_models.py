"""What the labels of a network mean, by its class."""

import inspect
import re

import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import BartConfig, BartForCausalLM, T5Config, T5ForConditionalGeneration

from integrations.transformers.tiny import text_model, trainer_for
from integrations.transformers.tiny_language import WORDS, llama, masked_bert, rows
from tpkd.errors import InputError
from tpkd.integrations.transformers_models import (
    _DO_NOT_SHIFT,
    base_model_of,
    language_kind,
    named_inputs,
    variadic_inputs,
)


def test_the_kind_of_a_network():
    assert language_kind(llama(0)) == "causal"
    assert language_kind(masked_bert(0)) == "masked"
    assert language_kind(text_model(0)) is None
    assert language_kind(text_model(0), loss_shifts_labels=True) == "causal"


def test_the_network_inside_its_wrappers():
    model = llama(0)
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"]))
    assert base_model_of(adapted) is model
    assert base_model_of(torch.compile(adapted)) is model
    assert language_kind(adapted) == "causal"
    assert "position_ids" in named_inputs(adapted)
    assert "kwargs" in variadic_inputs(adapted)
    assert not {"kwargs", "labels"} & named_inputs(adapted)


def test_labels_are_never_shifted_twice(tmp_path):
    config = BartConfig(
        vocab_size=WORDS,
        d_model=8,
        decoder_layers=1,
        decoder_attention_heads=1,
        decoder_ffn_dim=8,
        is_decoder=True,
        is_encoder_decoder=False,
    )
    with pytest.raises(InputError, match="found BartForCausalLM, which leaves that to its user"):
        trainer_for(tmp_path, BartForCausalLM(config), rows(), teacher=llama(1))


def test_a_decoder_that_reads_the_labels_is_refused(tmp_path):
    model = T5ForConditionalGeneration(T5Config(vocab_size=WORDS, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=1))
    with pytest.raises(InputError, match="found T5ForConditionalGeneration, whose decoder reads the labels"):
        trainer_for(tmp_path, model, rows(), teacher=llama(1))


@pytest.mark.parametrize("name", sorted(_DO_NOT_SHIFT))
def test_networks_that_leave_the_shift_to_their_user_still_do(name):
    source = inspect.getsource(getattr(transformers, name).forward)
    assert not {"self.loss_function(", "shift_logits", "shift_labels"} & set(re.findall(r"[\w.]+\(?", source))
