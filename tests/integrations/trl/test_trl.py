"""TRL's SFT trainer with a teacher takes the step of a plain loop over its texts."""

import copy

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

from integrations.transformers.tiny import Gradients, assert_close
from integrations.transformers.tiny_language import KEPT, WORDS, documents, llama, plain_step, tokenizer, write_blocks
from tpkd import tpkd_loss
from tpkd.errors import InputError
from tpkd.integrations.transformers import MonitorCallback
from tpkd.integrations.trl import DistillationSFTTrainer
from tpkd.teacher.cache.tokens import open_token_cache

EOS = 3


@pytest.fixture(autouse=True)
def _without_reports(monkeypatch):
    """TRL reports its use to a server unless it runs in such an environment."""
    monkeypatch.setenv("CI", "1")


def texts():
    """Sentences of the tokenizer's words."""
    return [" ".join(f"w{token}" for token in text.tolist()) for text in documents()]


def samples(prompt=0):
    """The same as the trainer must see them: with the end of text, and without a loss on the first words."""
    found = []
    for text in documents():
        tokens = torch.cat([text, torch.tensor([EOS])])
        labels = tokens.clone()
        labels[:prompt] = -100
        found.append({"input_ids": tokens, "labels": labels})
    return found


def config(directory, **changes):
    settings = {
        "per_device_train_batch_size": 8,
        "max_steps": 1,
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "max_length": 64,
        "shuffle_dataset": False,
    }
    return SFTConfig(str(directory), **settings | changes)


def trainer_for(directory, student, data, *, arguments=None, kind=DistillationSFTTrainer, **options):
    args = config(directory, **(arguments or {}))
    return kind(model=student, args=args, train_dataset=data, processing_class=tokenizer(), **options)


def step(directory, student, data, teacher, **options):
    seen = Gradients()
    trainer_for(directory, student, data, teacher=teacher, callbacks=[seen], **options).train()
    return seen.steps[0]


PLAIN = Dataset.from_dict({"text": texts()})


@pytest.mark.parametrize("linear_head", [False, True], ids=["dense", "linear"])
def test_texts_masked_packed_and_cut_give_the_gradient_of_a_plain_loop(tmp_path, linear_head):
    student, teacher = llama(0).double(), llama(1).double().eval()
    expected = plain_step(student, teacher, samples(), tpkd_loss)
    ways = {
        "1 x 8": {},
        "4 x 2": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
        "packed": {"packing": True, "per_device_train_batch_size": 64},
        "padding-free": {"padding_free": True, "max_length": None},
        "checkpointing": {"gradient_checkpointing": True},
    }
    for name, arguments in ways.items():
        found = step(tmp_path, copy.deepcopy(student), PLAIN, teacher, arguments=arguments, linear_head=linear_head)
        try:
            assert_close(found, expected, 1e-13)
        except AssertionError as error:
            raise AssertionError(name) from error


def test_prompts_are_not_learned(tmp_path):
    student, teacher = llama(0).double(), llama(1).double().eval()
    pairs = [text.split(" ", 2) for text in texts()]
    data = Dataset.from_dict(
        {"prompt": [f"{a} {b}" for a, b, _ in pairs], "completion": [f" {rest}" for *_, rest in pairs]}
    )
    expected = plain_step(student, teacher, samples(prompt=2), tpkd_loss)
    assert_close(step(tmp_path, student, data, teacher), expected, 1e-13)


def test_of_a_conversation_the_assistant_alone_is_learned(tmp_path):
    student, teacher = llama(0).double(), llama(1).double().eval()
    talker = tokenizer()
    talker.chat_template = (
        "{% for message in messages %}{% if message.role == 'assistant' %}{% generation %}{{ message.content }}"
        "{% endgeneration %}{% else %}{{ message.content }} {% endif %}{% endfor %}"
    )
    turns = [text.split(" ", 2) for text in texts()]
    talks = [[{"role": "user", "content": f"{a} {b}"}, {"role": "assistant", "content": rest}] for a, b, rest in turns]
    seen, data = Gradients(), Dataset.from_dict({"messages": talks})
    args = config(tmp_path, assistant_only_loss=True)
    DistillationSFTTrainer(
        copy.deepcopy(student), args, train_dataset=data, processing_class=talker, teacher=teacher, callbacks=[seen]
    ).train()
    spoken = [{"input_ids": text, "labels": text.clone().index_fill(0, torch.arange(2), -100)} for text in documents()]
    assert_close(seen.steps[0], plain_step(student, teacher, spoken, tpkd_loss), 1e-13)


def test_the_loss_of_labels_alone_is_that_of_trl(tmp_path):
    """With the objective `ce` nothing but the class has changed."""
    student = llama(0)
    seen, own = Gradients(), copy.deepcopy(student)
    trainer = trainer_for(tmp_path, own, PLAIN, kind=SFTTrainer, callbacks=[seen])
    trainer.train()
    found = step(tmp_path, copy.deepcopy(student), PLAIN, None, objective="ce")
    assert_close(found, seen.steps[0], 1e-6)
    ours = trainer_for(tmp_path, own, PLAIN, teacher=llama(1), linear_head=True)
    assert ours.evaluate(PLAIN)["eval_loss"] == pytest.approx(trainer.evaluate(PLAIN)["eval_loss"], rel=1e-5)


def test_adapters_and_a_truncated_teacher(tmp_path):
    teacher = llama(1).eval()
    adapters = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    found = [
        step(tmp_path, llama(0), PLAIN, teacher, peft_config=adapters, top_k=KEPT, linear_head=linear_head)
        for linear_head in (False, True)
    ]
    assert found[0]
    assert all("lora" in name for name in found[0])
    assert_close(found[1], found[0], 1e-6)


def test_a_token_cache_gives_the_step_of_its_network(tmp_path):
    teacher = llama(1).eval()
    write_blocks(tmp_path / "cache", teacher)
    data = open_token_cache(tmp_path / "cache").to_datasets()
    found = step(tmp_path, llama(0), data, tmp_path / "cache", linear_head=True)
    expected = step(tmp_path, llama(0), data, teacher, top_k=KEPT)
    assert_close(found, expected, 1e-6)
    with pytest.raises(InputError, match="packing: expected False"):
        trainer_for(tmp_path, llama(0), data, teacher=tmp_path / "cache", arguments={"packing": True})
    with pytest.raises(InputError, match="expected blocks of 12 tokens"):
        step(tmp_path, llama(0), data, tmp_path / "cache", arguments={"max_length": 11})


def test_what_is_logged_and_saved(tmp_path):
    arguments = {"save_strategy": "steps", "save_steps": 1}
    student = llama(0)
    trainer = trainer_for(
        tmp_path, student, PLAIN, teacher=llama(1), callbacks=[MonitorCallback()], arguments=arguments
    )
    trainer.train()
    assert {"blocked_share", "conditional_loss", "loss"} <= trainer.state.log_history[0].keys()
    from safetensors.torch import load_file

    assert load_file(tmp_path / "checkpoint-1" / "model.safetensors").keys() == student.state_dict().keys()


def test_what_cannot_be_served_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match=r"loss_type: expected 'nll', got 'dft'.* say linear_head=True where"):
        trainer_for(tmp_path, llama(0), PLAIN, teacher=llama(1), arguments={"loss_type": "dft"})
    with pytest.raises(InputError, match=f"the student has {WORDS} and the teacher {WORDS + 8}"):
        trainer_for(tmp_path, llama(0), PLAIN, teacher=llama(1, words=WORDS + 8))
