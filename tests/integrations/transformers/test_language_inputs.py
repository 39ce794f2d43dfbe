"""What a batch of text may say about itself, and what of it reaches which network: nothing wrong passes in silence."""

import copy

import pytest
import torch
from transformers import BloomConfig, BloomForCausalLM

from integrations.transformers.test_language import step
from integrations.transformers.tiny import assert_close, trainer_for
from integrations.transformers.tiny_language import (
    LENGTH,
    WORDS,
    llama,
    pack,
    pad_right,
    plain_step,
    rows,
    tokenizer,
    write_blocks,
)
from tpkd import tpkd_loss
from tpkd.errors import InputError
from tpkd.integrations.transformers_language import BOUNDARIES
from tpkd.teacher.cache.tokens import open_token_cache

each_path = pytest.mark.parametrize("linear_head", [False, True], ids=["dense", "linear"])


@pytest.fixture
def cached(tmp_path):
    """A cache and its blocks."""
    write_blocks(tmp_path / "cache", llama(1).eval())
    return tmp_path / "cache", list(open_token_cache(tmp_path / "cache").dataset())


def longer(sample, label):
    """A block with one more token behind it."""
    more = {"input_ids": torch.tensor([3]), "labels": torch.tensor([label])}
    return sample | {name: torch.cat([sample[name], token]) for name, token in more.items()}


@each_path
def test_labels_behind_a_cached_block_are_refused_and_other_tokens_change_nothing(tmp_path, cached, linear_head):
    path, data = cached
    with pytest.raises(InputError, match=f"rows that end with their block of {LENGTH} tokens, found rows of 13"):
        step(tmp_path, llama(0), [longer(sample, 3) for sample in data], path, linear_head=linear_head)
    expected = step(tmp_path, llama(0), data, path, linear_head=linear_head)
    unlabelled = [longer(sample, -100) for sample in data]
    assert_close(step(tmp_path, llama(0), unlabelled, path, linear_head=linear_head), expected, 1e-6)


def test_positions_that_start_again_within_a_cached_block_are_refused(tmp_path, cached):
    path, data = cached

    def collate(samples, *, restart):
        positions = torch.arange(LENGTH) % restart
        return pad_right(samples) | {"position_ids": positions.expand(len(samples), -1)}

    with pytest.raises(InputError, match="position_ids: expected none that start again within a block"):
        step(tmp_path, llama(0), data, path, collate=lambda samples: collate(samples, restart=5))
    expected = step(tmp_path, llama(0), data, path)
    found = step(tmp_path, llama(0), data, path, collate=lambda samples: collate(samples, restart=LENGTH))
    assert_close(found, expected, 1e-6)


def test_packed_documents_are_as_long_as_the_longest_of_them(tmp_path):
    """The row has more tokens than the teacher has positions, and no document has."""
    student, teacher = llama(0).double(), llama(1, max_position_embeddings=LENGTH).double().eval()
    expected = plain_step(student, teacher, rows(), tpkd_loss)
    assert pack(rows())["input_ids"].shape[1] > LENGTH
    assert_close(step(tmp_path, copy.deepcopy(student), rows(), teacher, collate=pack), expected, 1e-13)
    with pytest.raises(InputError, match=f"expected at most the {LENGTH - 2} positions of the teacher"):
        step(tmp_path, student, rows(), llama(1, max_position_embeddings=LENGTH - 2).double(), collate=pack)


def listening(model, heard):
    """The network, which tells what beside its named inputs it is called with."""

    class Listening(type(model)):
        def forward(self, input_ids=None, attention_mask=None, position_ids=None, use_cache=None, **kwargs):
            heard.append(frozenset(kwargs))
            return super().forward(
                input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=use_cache
            )

    model.__class__ = Listening
    return model


def test_the_teacher_is_told_where_packed_documents_end(tmp_path):
    heard, told = [], []

    def collate(samples):
        return pack(samples) | {"seq_idx": torch.zeros(1, 1, dtype=torch.int32), "max_length_q": LENGTH}

    step(tmp_path, listening(llama(0), told), rows(), listening(llama(1), heard), collate=collate)
    assert {"seq_idx", "max_length_q"} == heard[0] & BOUNDARIES == told[0] & BOUNDARIES


def test_a_student_that_would_read_packed_documents_as_one_is_refused(tmp_path):
    size = {"vocab_size": WORDS, "hidden_size": 16, "n_layer": 1, "n_head": 2}
    student = BloomForCausalLM(BloomConfig(**size))
    with pytest.raises(InputError, match="expected a student that takes them, found BloomForCausalLM"):
        step(tmp_path, student, rows(), llama(1), collate=pack)
    assert step(tmp_path, student, rows(), llama(1), arguments_={"use_cpu": True})


def test_a_true_vocabulary_that_leaves_out_tokens_is_refused(tmp_path):
    wide = {"teacher": llama(1, words=WORDS + 8), "processing_class": tokenizer()}
    with pytest.raises(InputError, match=f"true_vocab_size: expected at least {WORDS}, found {WORDS - 10}"):
        trainer_for(tmp_path, llama(0), rows(), true_vocab_size=WORDS - 10, **wide)
    assert trainer_for(tmp_path, llama(0), rows(), true_vocab_size=WORDS, **wide)


def shifted_by_hand(samples, name):
    batch = pad_right(samples)
    return batch | {name: torch.nn.functional.pad(batch.pop("labels")[:, 1:], (0, 1), value=-100)}


def test_labels_that_were_shifted_before_say_so(tmp_path):
    teacher = llama(1)
    expected = step(tmp_path, llama(0), rows(), teacher)
    said = step(tmp_path, llama(0), rows(), teacher, collate=lambda samples: shifted_by_hand(samples, "shift_labels"))
    assert_close(said, expected, 1e-6)
    with pytest.raises(InputError, match="labels: expected the tokens themselves, found each position's next token"):
        step(tmp_path, llama(0), rows(), teacher, collate=lambda samples: shifted_by_hand(samples, "labels"))


@each_path
def test_labels_that_were_shifted_before_have_an_evaluation_loss(tmp_path, linear_head):
    losses = []
    for collate in (pad_right, lambda samples: shifted_by_hand(samples, "shift_labels")):
        trainer = trainer_for(
            tmp_path, llama(0), rows(), teacher=llama(1), data_collator=collate, linear_head=linear_head
        )
        losses.append(trainer.evaluate(rows())["eval_loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_head_that_training_would_replace_is_refused(tmp_path):
    options = {"model_init": lambda: llama(0), "teacher": llama(1), "linear_head": True}
    with pytest.raises(InputError, match="linear_head: expected a student given as model="):
        trainer_for(tmp_path, None, rows(), **options)
