"""The teacher of a language model: a cache in its place, tables of another size, another tokenizer, a monitor."""

import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from integrations.transformers.test_language import step
from integrations.transformers.tiny import Gradients, assert_close, text_model, texts, trainer_for
from integrations.transformers.tiny_language import (
    KEPT,
    LENGTH,
    WORDS,
    documents,
    llama,
    lora,
    masked_bert,
    masking_collator,
    pack,
    pad_right,
    plain_step,
    rows,
    tokenizer,
    write_blocks,
)
from tpkd import tpkd_loss
from tpkd.errors import InputError
from tpkd.geometry.top_k import TopK
from tpkd.integrations.transformers import MonitorCallback
from tpkd.teacher.cache.tokens import open_token_cache
from tpkd.teacher.cache.truncation import truncate


@pytest.mark.parametrize("linear_head", [False, True], ids=["dense", "linear"])
def test_a_cached_teacher_trains_as_the_network_does(tmp_path, linear_head):
    """Eight steps: from the cache in float32, and from the network truncated online."""
    student, teacher = llama(0), llama(1).eval()
    write_blocks(tmp_path / "cache", teacher)
    data = list(open_token_cache(tmp_path / "cache").dataset())
    arguments = {"max_steps": 8, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    ends = []
    for options in ({"teacher": tmp_path / "cache"}, {"teacher": teacher, "top_k": KEPT}):
        trained, seen = copy.deepcopy(student), Gradients()
        trainer_for(
            tmp_path / "run",
            trained,
            data,
            data_collator=pad_right,
            arguments_=arguments,
            linear_head=linear_head,
            callbacks=[seen],
            **options,
        ).train()
        ends.append((seen.steps, trained.state_dict()))
    (steps, end), (other_steps, other_end) = ends
    assert len(steps) == 8
    assert_close(steps[0], other_steps[0], 1e-6)
    assert_close(end, other_end, 1e-5)  # float32 through eight steps
    moved = max(float((end[name] - value).abs().max()) for name, value in student.state_dict().items())
    assert moved > 1e-3


def test_the_columns_of_a_cache_reach_no_network(tmp_path):
    teacher = llama(1).eval()
    write_blocks(tmp_path / "cache", teacher)
    data = list(open_token_cache(tmp_path / "cache").dataset())
    found = step(tmp_path, llama(0), data, open_token_cache(tmp_path / "cache"))
    expected = step(tmp_path, llama(0), data, teacher, top_k=KEPT)
    assert_close(found, expected, 1e-6)


def test_other_texts_than_those_of_the_cache_are_refused(tmp_path):
    write_blocks(tmp_path / "cache", llama(1).eval())
    data = list(open_token_cache(tmp_path / "cache").dataset())
    data[3]["input_ids"][5] += 1
    with pytest.raises(InputError, match=r"document 103, block 0, token 5: expected .*, found .*: other text"):
        step(tmp_path, llama(0), data, tmp_path / "cache")
    shorter = [sample | {name: sample[name][:-1] for name in ("input_ids", "labels")} for sample in data]
    with pytest.raises(InputError, match=f"expected blocks of {LENGTH} tokens"):
        step(tmp_path, llama(0), shorter, tmp_path / "cache")
    nameless = [{name: sample[name] for name in ("input_ids", "labels")} for sample in data]
    with pytest.raises(InputError, match="sample_id: expected this column"):
        step(tmp_path, llama(0), nameless, tmp_path / "cache")


def test_a_cache_of_another_tokenizer_or_of_samples_is_refused(tmp_path):
    write_blocks(tmp_path / "cache", llama(1).eval(), tokenizer_=tokenizer())
    assert trainer_for(tmp_path, llama(0), rows(), teacher=tmp_path / "cache", processing_class=tokenizer())
    names = ["<pad>", "<unk>", "<mask>", "<eos>", *(f"v{number}" for number in range(4, WORDS))]
    other = {"teacher": tmp_path / "cache", "processing_class": tokenizer(names=names)}
    with pytest.raises(InputError, match=r"tokenizer: expected processing_class, .*, found .*: a token number means"):
        trainer_for(tmp_path, llama(0), rows(), **other)
    assert trainer_for(tmp_path, llama(0), rows(), check_inputs=False, **other)
    with pytest.raises(InputError, match=f"true_vocab_size: .* the student has {WORDS + 8} and the teacher {WORDS}"):
        trainer_for(tmp_path, llama(0, words=WORDS + 8), rows(), teacher=tmp_path / "cache")
    with pytest.raises(InputError, match="teacher: expected a network, because other tokens are masked"):
        trainer_for(tmp_path, masked_bert(0), rows(), teacher=tmp_path / "cache")


@pytest.mark.parametrize("linear_head", [False, True], ids=["dense", "linear"])
@pytest.mark.parametrize("wider", ["student", "teacher"])
@pytest.mark.parametrize("top_k", [None, KEPT])
def test_tables_of_different_padding_are_compared_on_the_tokens(tmp_path, wider, top_k, linear_head):
    """The same networks with rows of padding more: the teacher's change nothing, the student's are ruled out."""
    sizes = {"student": WORDS, "teacher": WORDS} | {wider: WORDS + 8}
    student, teacher = (llama(seed, words=sizes[who]).double() for seed, who in enumerate(sizes))
    options = {"true_vocab_size": WORDS, "linear_head": linear_head, "top_k": top_k}
    found = step(tmp_path, copy.deepcopy(student), rows(), teacher, **options)
    if wider == "teacher":
        narrow = copy.deepcopy(teacher)
        narrow.resize_token_embeddings(WORDS)
        expected = step(tmp_path, copy.deepcopy(student), rows(), narrow, top_k=top_k)
        assert_close(found, expected, 1e-13)
    else:
        assert found["lm_head.weight"][WORDS:].abs().min() > 0  # cross-entropy pushes padding down
        both = {"processing_class": tokenizer(), "teacher_processing_class": tokenizer()}
        del options["true_vocab_size"]
        assert_close(step(tmp_path, student, rows(), teacher, **options, **both), found, 1e-13)


def test_every_objective_takes_a_student_with_padding(tmp_path):
    """A class of teacher probability zero is no nan."""
    student, teacher = llama(0, words=WORDS + 8), llama(1)
    for name in ("kd", "dkd", "kl-dist", "xe-kl", "safe-full-kl", "tpkd"):
        found = step(tmp_path, copy.deepcopy(student), rows(), teacher, objective=name, true_vocab_size=WORDS)
        assert all(gradient.isfinite().all() for gradient in found.values()), name


def test_other_vocabularies_are_refused_by_name(tmp_path):
    student = llama(0)
    with pytest.raises(InputError, match=f"true_vocab_size: .* the student has {WORDS} and the teacher {WORDS + 8}"):
        trainer_for(tmp_path, student, rows(), teacher=llama(1, words=WORDS + 8))
    with pytest.raises(
        InputError, match=rf"true_vocab_size: expected from 3 to the student's {WORDS}, got {WORDS + 2}"
    ):
        trainer_for(tmp_path, student, rows(), teacher=llama(1, words=WORDS + 8), true_vocab_size=WORDS + 2)
    names = ["<pad>", "<unk>", "<mask>", "<eos>", *(f"v{number}" for number in range(4, WORDS))]
    both = {"processing_class": tokenizer(), "teacher_processing_class": tokenizer(names=names)}
    with pytest.raises(InputError, match="expected token 'w4' to be 4 as in processing_class, found none"):
        trainer_for(tmp_path, student, rows(), teacher=llama(1), **both)


@pytest.mark.parametrize("saved", [None, ["lm_head"]], ids=["frozen head", "trained head"])
@pytest.mark.parametrize("linear_head", [False, True], ids=["dense", "linear"])
def test_adapters_learn_alone(tmp_path, linear_head, saved):
    student, teacher = lora(llama(0).double(), modules_to_save=saved), llama(1).double().eval()
    expected = plain_step(student, teacher, rows(), tpkd_loss)
    assert all("lora" in name or "modules_to_save" in name for name in expected)
    assert any("modules_to_save" in name for name in expected) == (saved is not None)
    arguments = {"gradient_checkpointing": True}
    for way in ({}, {"collate": pack, "arguments_": arguments}):
        found = step(tmp_path, copy.deepcopy(student), rows(), teacher, linear_head=linear_head, **way)
        assert_close(found, expected, 1e-13)


def test_an_adapter_of_the_head_is_not_overlooked(tmp_path):
    student, teacher = lora(llama(0).double(), target_modules=["lm_head"]), llama(1).double().eval()
    expected = plain_step(student, teacher, rows(), tpkd_loss)
    assert_close(step(tmp_path, copy.deepcopy(student), rows(), teacher), expected, 1e-13)
    with pytest.raises(InputError, match=r"linear_head: expected the output head of LlamaForCausalLM to be an nn.Lin"):
        trainer_for(tmp_path, student, rows(), teacher=teacher, linear_head=True)


def test_a_checkpoint_holds_the_student_alone(tmp_path):
    student, teacher = llama(0), llama(1, hidden=24)
    arguments = {"max_steps": 2, "save_strategy": "steps", "save_steps": 2, "per_device_train_batch_size": 2}
    options = {"teacher": teacher, "data_collator": pad_right, "linear_head": True, "top_k": KEPT}
    trainer_for(tmp_path, student, rows(), arguments_=arguments, **options).train()
    saved = load_file(tmp_path / "checkpoint-2" / "model.safetensors")
    assert saved.keys() == student.state_dict().keys()
    assert all(value.equal(student.state_dict()[name]) for name, value in saved.items())
    moments = torch.load(tmp_path / "checkpoint-2" / "optimizer.pt", weights_only=True)["state"]
    assert len(moments) == len(list(student.parameters()))
    assert "forward" not in vars(student.lm_head)
    assert "forward" not in vars(teacher.lm_head)


class StoppedError(Exception):
    pass


def test_a_stopped_run_ends_where_the_unbroken_one_does(tmp_path):
    teacher = llama(1).eval()
    write_blocks(tmp_path / "cache", teacher)
    data = list(open_token_cache(tmp_path / "cache").dataset())

    def run(directory, steps):
        arguments = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, "per_device_train_batch_size": 2}
        options = {"teacher": tmp_path / "cache", "data_collator": pad_right, "linear_head": True}
        trainer = trainer_for(directory, llama(0, attention_dropout=0.2), data, arguments_=arguments, **options)
        if steps < 6:

            def stop_early(*args, **kwargs):
                if trainer.state.global_step == steps:
                    raise StoppedError
                return type(trainer).training_step(trainer, *args, **kwargs)

            trainer.training_step = stop_early
        return trainer

    with pytest.raises(StoppedError):
        run(tmp_path / "stopped", 4).train()
    run(tmp_path / "stopped", 6).train(resume_from_checkpoint=True)
    run(tmp_path / "unbroken", 6).train()
    one, other = (load_file(tmp_path / name / "checkpoint-6" / "model.safetensors") for name in ("stopped", "unbroken"))
    assert all(value.equal(other[name]) for name, value in one.items())


@pytest.mark.parametrize("linear_head", [False, True], ids=["dense", "linear"])
@pytest.mark.parametrize("top_k", [None, KEPT])
def test_the_monitor_sees_tokens(tmp_path, linear_head, top_k):
    student, teacher = llama(0, words=WORDS + 8), llama(1)
    options = {"teacher": teacher, "top_k": top_k, "true_vocab_size": WORDS, "data_collator": pad_right}
    trainer = trainer_for(
        tmp_path, copy.deepcopy(student), rows(), callbacks=[MonitorCallback()], linear_head=linear_head, **options
    )
    trainer.train()
    entry = trainer.state.log_history[0]
    batch = pad_right(rows())
    targets = torch.nn.functional.pad(batch.pop("labels")[:, 1:], (0, 1), value=-100)
    valid = targets != -100
    logits, answers = (model(**batch).logits.detach()[valid][:, :WORDS] for model in (student, teacher))
    labels = targets[valid]
    if top_k is not None:
        answers = truncate(answers, labels, top_k)
    from tpkd.theory import observe

    expected = {name: float(value) for name, value in observe(logits, answers, labels).items()}
    assert {name: entry[name] for name in expected} == pytest.approx(expected, rel=1e-4)


def test_what_cannot_be_served_is_refused_by_name(tmp_path):
    student, teacher = llama(0), llama(1)
    cases = {
        "linear_head: expected objective 'tpkd', found 'kd'": {"objective": "kd", "linear_head": True},
        "top_k: objective 'kd' needs all classes: set temperature=1": {"objective": "kd", "top_k": 4},
        "top_k: expected at least 1, got 0": {"top_k": 0},
    }
    for message, options in cases.items():
        with pytest.raises(InputError, match=message):
            trainer_for(tmp_path, student, rows(), teacher=teacher, **options)
    capped = llama(0)
    capped.config.final_logit_softcapping = 30.0
    with pytest.raises(
        InputError, match=r"linear_head: .* found final_logit_softcapping=30.0 in the configuration of L"
    ):
        trainer_for(tmp_path, capped, rows(), teacher=teacher, linear_head=True)
    experts = llama(0)
    experts.config.output_router_logits = True
    with pytest.raises(InputError, match="output_router_logits: expected False"):
        trainer_for(tmp_path, experts, rows(), teacher=teacher)
    for name, value in {"top_k": 3, "true_vocab_size": 9, "linear_head": True}.items():
        with pytest.raises(InputError, match=f"{name}: expected none, because the student is a classifier"):
            trainer_for(tmp_path, text_model(0), texts(), teacher=text_model(1), **{name: value})
    bare = [{"input_ids": text} for text in documents(shortest=LENGTH)]
    with pytest.raises(InputError, match=r"labels: expected the tokens of each text.*mlm=False"):
        step(tmp_path, student, bare, teacher, collate=None)
    with pytest.raises(InputError, match=r"labels: expected the tokens that were masked.*mlm=True"):
        step(tmp_path, masked_bert(0), bare, masked_bert(1), collate=None)


def changing(model, change):
    """The network, which does something to its logits after its head."""

    class Changing(type(model)):
        def forward(self, *args, **kwargs):
            found = super().forward(*args, **kwargs)
            found.logits = change(found.logits)
            return found

    model.__class__ = Changing
    return model


def doubled(logits):
    return 2 * logits


CHANGES_ITS_HEAD = "linear_head: expected a network that returns what its output head makes"


def test_a_network_that_changes_what_its_head_makes_is_found_out(tmp_path):
    with pytest.raises(InputError, match=CHANGES_ITS_HEAD):
        step(tmp_path, changing(llama(0), doubled), rows(), llama(1), linear_head=True)
    options = {"teacher": llama(1), "linear_head": True, "data_collator": pad_right}
    trainer = trainer_for(tmp_path, changing(llama(0), doubled), rows(), **options)
    with pytest.raises(InputError, match=CHANGES_ITS_HEAD):
        trainer.evaluate(rows())


def test_a_first_batch_without_targets_does_not_hide_a_change(tmp_path):
    """Twice zero is zero: the next batch is looked at."""
    student, batch = changing(llama(0), doubled), pad_right(rows())
    options = {"teacher": llama(1), "linear_head": True, "data_collator": pad_right}
    trainer = trainer_for(tmp_path, student, rows(), **options)
    nothing = batch | {"labels": torch.full_like(batch["labels"], -100)}
    assert trainer.compute_loss(student, nothing) == 0
    with pytest.raises(InputError, match=CHANGES_ITS_HEAD):
        trainer.compute_loss(student, batch)


def test_a_loss_of_nan_is_not_blamed_on_the_network(tmp_path):
    student = llama(0)
    with torch.no_grad():
        student.model.norm.weight[0] = torch.nan
    found = step(tmp_path, student, rows(), llama(1), linear_head=True)
    assert found["lm_head.weight"].isnan().any()


def test_networks_are_tried_in_the_first_step_alone(tmp_path, monkeypatch):
    """To look at a value is to wait for the GPU."""
    from tpkd.integrations import transformers_language

    tried, same_values = [], transformers_language.same_values
    monkeypatch.setattr(transformers_language, "same_values", lambda *pair: tried.append(pair) or same_values(*pair))
    options = {"linear_head": True, "top_k": KEPT, "arguments_": {"max_steps": 4}}
    step(tmp_path, llama(0), rows(), llama(1), **options)
    assert len(tried) == 2  # the teacher's logits, and the student's loss


CHANGES = {
    "doubled": doubled,
    "capped": lambda logits: 3 * torch.tanh(logits / 3),
    "refuses a row": lambda logits: 2 * logits.view(8, -1, WORDS),
}


@pytest.mark.parametrize("linear_head", [False, True], ids=["dense", "linear"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_teacher_that_changes_what_its_head_makes_is_asked_for_all_logits(tmp_path, name, linear_head):
    """Two steps; the truncated teacher of the expected ones is that of a network without a head to be found."""
    student, ends = llama(0).double(), []
    for hidden in (False, True):
        teacher, seen = changing(llama(1, hidden=24).double(), CHANGES[name]), Gradients()
        if hidden:
            teacher.get_output_embeddings = lambda: None
        options = {"teacher": teacher, "top_k": KEPT, "linear_head": linear_head, "data_collator": pad_right}
        arguments = {"max_steps": 2, "per_device_train_batch_size": 8}
        trainer_for(tmp_path, copy.deepcopy(student), rows(), arguments_=arguments, callbacks=[seen], **options).train()
        ends.append(seen.steps)
    for found, expected in zip(*ends, strict=True):
        assert_close(found, expected, 0.0)
    plain = step(tmp_path, copy.deepcopy(student), rows(), llama(1, hidden=24).double(), top_k=KEPT)
    assert max(float((plain[each] - ends[0][0][each]).abs().max()) for each in plain) > 1e-4


def test_the_largest_classes_of_a_teacher_that_changes_its_logits(tmp_path):
    """With all classes kept the gradient is that of the whole teacher."""
    student, teacher = llama(0).double(), changing(llama(1).double(), doubled)
    expected = plain_step(student, teacher, rows(), tpkd_loss)
    assert_close(step(tmp_path, student, rows(), teacher, top_k=WORDS, linear_head=True), expected, 1e-12)


def test_a_teacher_that_would_read_packed_documents_as_one_is_refused(tmp_path):
    class WithoutPositions(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.config = inner, inner.config

        def forward(self, input_ids, attention_mask=None):
            return self.inner(input_ids=input_ids, attention_mask=attention_mask)

    teacher = WithoutPositions(llama(1))
    assert step(tmp_path, llama(0), rows(), teacher)
    with pytest.raises(InputError, match="position_ids: expected a teacher that takes them, found WithoutPositions"):
        step(tmp_path, llama(0), rows(), teacher, collate=pack)


def test_a_teacher_of_ones_own(tmp_path):
    """Whoever answers by document and block, as a server would."""
    from tpkd.teacher.teacher import Answers, Teacher

    network = llama(1).eval()
    tokens = write_blocks(tmp_path / "cache", network)

    class Server(Teacher):
        fingerprint, about, top_k = "server", network, KEPT

        def to(self, device):
            return self

        def answer(self, inputs=None, sample_ids=None, view_ids=None, *, with_layers=False):
            asked = tokens[sample_ids - 100]
            logits = network(input_ids=asked).logits[:, :-1].detach()
            kept = truncate(logits.flatten(0, 1), asked[:, 1:].flatten(), KEPT)
            return Answers(kept.map(lambda values: values.unflatten(0, (len(asked), LENGTH - 1))))

    data = list(open_token_cache(tmp_path / "cache").dataset())
    assert isinstance(Server().answer(sample_ids=torch.tensor([100])).logits, TopK)
    assert_close(step(tmp_path, llama(0), data, Server()), step(tmp_path, llama(0), data, tmp_path / "cache"), 1e-6)


def test_masks_change_and_the_network_is_asked_anew(tmp_path):
    """A masked language model through the collator people use, two epochs of it."""
    data = [{"input_ids": text.tolist()} for text in documents(16)]
    arguments = {"max_steps": 4, "per_device_train_batch_size": 8}
    options = {"teacher": masked_bert(1), "data_collator": masking_collator(), "linear_head": True, "top_k": KEPT}
    trainer = trainer_for(tmp_path, masked_bert(0), data, arguments_=arguments, **options)
    losses = trainer.train() and [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 4
    assert all(np.isfinite(losses))
