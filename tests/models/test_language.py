"""Causal language models and their tokenisers from a folder."""

import numpy as np
import pytest
import torch

from tokens.tiny import write_model
from tpkd.errors import InputError
from tpkd.models.language import keep_layers, language_source, load_language_model, load_tokenizer, vocabulary_size


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(write_model(tmp_path_factory.mktemp("model")))


def test_what_is_loaded(folder):
    model, tokenizer = load_language_model(folder), load_tokenizer(folder)
    assert not model.training
    assert vocabulary_size(folder) == len(tokenizer) == model.config.vocab_size
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_a_student_of_some_layers_computes_as_a_stack_of_them(folder):
    teacher, student = load_language_model(folder), keep_layers(load_language_model(folder), (0, 2))
    tokens = torch.arange(10).unsqueeze(0)
    assert student.config.num_hidden_layers == 2
    states = teacher.model.embed_tokens(tokens)
    rotary = teacher.model.rotary_emb(states, tokens)
    mask = torch.full((10, 10), -torch.inf).triu(1)[None, None]
    for layer in (0, 2):
        states = teacher.model.layers[layer](states, attention_mask=mask, position_embeddings=rotary)
    expected = teacher.lm_head(teacher.model.norm(states))
    with torch.no_grad():
        torch.testing.assert_close(student(tokens).logits, expected, atol=1e-5, rtol=1e-5)


def test_a_student_of_some_layers_is_saved_and_generates(folder, tmp_path):
    student = keep_layers(load_language_model(folder), (1, 2))
    student.save_pretrained(tmp_path)
    tokens = torch.arange(1, 6).unsqueeze(0)
    again = load_language_model(str(tmp_path))
    with torch.no_grad():
        assert torch.equal(again(tokens).logits, student(tokens).logits)
        kept, recomputed = (
            student.generate(tokens, max_new_tokens=4, do_sample=False, use_cache=use) for use in (True, False)
        )
    assert torch.equal(kept, recomputed)


@pytest.mark.parametrize("layers", [(2, 0), (0, 0), (0, 3), (-1, 0), ()])
def test_layers_that_are_not_there_are_refused(folder, layers):
    with pytest.raises(InputError, match=r"layers: expected rising numbers from 0 to 2"):
        keep_layers(load_language_model(folder), layers)


def test_a_model_without_such_layers_is_refused():
    with pytest.raises(InputError, match=r"layers: expected a model with a list model\.layers, found Linear"):
        keep_layers(torch.nn.Linear(2, 2), (0,))


@pytest.mark.parametrize("model", ["timm:x", "folder", "hf:"])
def test_other_kinds_are_refused(model):
    with pytest.raises(InputError, match=r"model: expected hf:PATH_OR_ID"):
        language_source(model)


def write_gguf(path, vocabulary=11, width=8, layers=3):
    """A random Llama as a GGUF file of plain numbers."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(32)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(2 * width)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // 2)
    writer.add_vocab_size(vocabulary)
    square, wide = (width, width), (2 * width, width)
    shapes = {"attn_norm": (width,), "ffn_norm": (width,), "ffn_gate": wide, "ffn_up": wide, "ffn_down": wide[::-1]}
    shapes |= {f"attn_{name}": square for name in ("q", "k", "v", "output")}
    tensors = {f"blk.{layer}.{name}.weight": shape for layer in range(layers) for name, shape in shapes.items()}
    tensors |= {"token_embd.weight": (vocabulary, width), "output_norm.weight": (width,)}
    tensors["output.weight"] = (vocabulary, width)
    rng = np.random.default_rng(0)
    for name, shape in tensors.items():
        writer.add_tensor(name, rng.standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_student_of_some_layers_of_a_gguf_file_is_saved(tmp_path):
    write_gguf(tmp_path / "tiny.gguf")
    student = keep_layers(load_language_model(str(tmp_path), "tiny.gguf"), (0, 2))
    student.save_pretrained(tmp_path / "student")
    tokens = torch.arange(1, 6).unsqueeze(0)
    with torch.no_grad():
        assert torch.equal(load_language_model(str(tmp_path / "student"))(tokens).logits, student(tokens).logits)


def test_a_missing_gguf_file_is_named(folder):
    with pytest.raises(InputError, match=r"gguf: expected a file in .*, found none named 'x\.gguf'"):
        load_language_model(folder, "x.gguf")
