"""A teacher reads the student's inputs: the same words by the same numbers, and no more of them than it has places."""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForSequenceClassification

from integrations.transformers.tiny import CLASSES, LENGTH, WORDS, image_model, images, text_model, texts, trainer_for
from tpkd.errors import InputError


def tokenizer(words):
    """A tokenizer that numbers these words as they come."""
    core = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0]))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token=words[0], pad_token=words[1])


PLAIN = [f"w{number}" for number in range(WORDS)]
SWAPPED = [*PLAIN[:5], PLAIN[6], PLAIN[5], *PLAIN[7:]]


@pytest.mark.parametrize("size", [WORDS - 10, WORDS + 10], ids=["smaller", "larger"])
def test_another_vocabulary_is_refused_at_construction(tmp_path, size):
    message = (
        rf"teacher.config.vocab_size: expected the student's {WORDS}, found {size}.*teacher_processing_class=.*check_"
    )
    with pytest.raises(InputError, match=message):
        trainer_for(tmp_path, text_model(0), texts(), teacher=text_model(1, vocab_size=size))


def test_another_padding_token_is_refused_at_construction(tmp_path):
    with pytest.raises(InputError, match=r"teacher.config.pad_token_id: expected the student's 0, found 3"):
        trainer_for(tmp_path, text_model(0), texts(), teacher=text_model(1, pad_token_id=3))


def test_two_tokenizers_are_compared_word_by_word(tmp_path):
    student, teacher = text_model(0), text_model(1)
    same = {"processing_class": tokenizer(PLAIN), "teacher_processing_class": tokenizer(PLAIN)}
    assert trainer_for(tmp_path, student, texts(), teacher=teacher, **same)
    other = same | {"teacher_processing_class": tokenizer(SWAPPED)}
    message = "teacher_processing_class: expected token 'w5' to be 5 as in processing_class, found 6"
    with pytest.raises(InputError, match=message):
        trainer_for(tmp_path, student, texts(), teacher=teacher, **other)
    shorter = same | {"teacher_processing_class": tokenizer(PLAIN[:-1])}
    with pytest.raises(InputError, match=f"expected token 'w{WORDS - 1}' to be {WORDS - 1} .*, found none"):
        trainer_for(tmp_path, student, texts(), teacher=teacher, **shorter)


def test_one_tokenizer_may_have_tables_of_two_sizes(tmp_path):
    """Tables are padded to round numbers; what counts is that every token has a row."""
    both = {"processing_class": tokenizer(PLAIN), "teacher_processing_class": tokenizer(PLAIN)}
    padded = text_model(1, vocab_size=WORDS + 2)
    assert trainer_for(tmp_path, text_model(0), texts(), teacher=padded, **both).train().training_loss > 0
    short = text_model(1, vocab_size=WORDS - 2)
    with pytest.raises(
        InputError, match=f"vocab_size: expected a row for each of the {WORDS} tokens .*, found {WORDS - 2}"
    ):
        trainer_for(tmp_path, text_model(0), texts(), teacher=short, **both)


def test_who_answers_for_the_inputs_may_say_so(tmp_path):
    teacher = text_model(1, vocab_size=WORDS + 10, pad_token_id=3)
    trainer = trainer_for(tmp_path, text_model(0), texts(), teacher=teacher, check_inputs=False)
    assert trainer.train().training_loss > 0


class OwnWords(nn.Module):
    """A teacher with a tokenizer of its own, whose tokens stand in a column of their own."""

    def __init__(self):
        super().__init__()
        self.network = text_model(1, vocab_size=WORDS + 10)
        self.config = self.network.config

    def forward(self, teacher_input_ids):
        return self.network(input_ids=teacher_input_ids)


def test_a_teacher_that_reads_its_own_column_has_its_own_vocabulary(tmp_path):
    data = [sample | {"teacher_input_ids": sample["input_ids"] + 10} for sample in texts()]
    assert trainer_for(tmp_path, text_model(0), data, teacher=OwnWords()).train().training_loss > 0


class Silent(nn.Module):
    """A teacher that says nothing about its vocabulary."""

    def __init__(self):
        super().__init__()
        self.network = text_model(1, vocab_size=WORDS - 10)

    def forward(self, input_ids):
        return self.network(input_ids=input_ids)


def test_a_number_that_an_unknown_vocabulary_lacks_is_named(tmp_path):
    with pytest.raises(InputError, match="teacher: expected it to know every number of the student's inputs, found"):
        trainer_for(tmp_path, text_model(0), texts(), teacher=Silent()).train()


def roberta(places, seed=1):
    """Its first positions are taken by the padding token and those before it."""
    torch.manual_seed(seed)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = RobertaConfig(vocab_size=WORDS, max_position_embeddings=places, pad_token_id=1, num_labels=CLASSES, **size)
    return RobertaForSequenceClassification(config)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_longer_texts_than_the_teacher_has_places_are_named_at_the_first_batch(tmp_path, kind):
    def both(places):
        if kind == "bert":
            return text_model(0), text_model(1, max_position_embeddings=places)
        return roberta(100, 0), roberta(places + 2)

    student, teacher = both(LENGTH)
    assert trainer_for(tmp_path, student, texts(), teacher=teacher).train().training_loss > 0
    student, teacher = both(LENGTH - 1)
    message = rf"input_ids: expected at most the {LENGTH - 1} positions of the teacher.*, found {LENGTH}: .*truncate"
    with pytest.raises(InputError, match=message):
        trainer_for(tmp_path, student, texts(), teacher=teacher).train()


def image_processor(mean):
    return type("Processor", (), {"image_mean": mean, "image_std": [0.5], "save_pretrained": lambda *_: None})()


def test_images_normalised_otherwise_are_refused(tmp_path):
    student, teacher = image_model(0), image_model(1)
    same = {"processing_class": image_processor([0.5]), "teacher_processing_class": image_processor((0.5,))}
    assert trainer_for(tmp_path, student, images(), teacher=teacher, **same)
    other = same | {"teacher_processing_class": image_processor([0.4])}
    with pytest.raises(
        InputError, match=r"teacher_processing_class.image_mean: expected the student's \[0.5\], found \[0.4\]"
    ):
        trainer_for(tmp_path, student, images(), teacher=teacher, **other)
