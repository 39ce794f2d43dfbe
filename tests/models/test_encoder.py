import json
import os
import pickle

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, DistilBertConfig, DistilBertModel

from models.networks import TINY_BERT, build, inputs_for, real_data, tokens
from tpkd.errors import InputError
from tpkd.models.encoder import masked_mean
from tpkd.models.registry import build_model, encoder_for
from tpkd.models.spec import ModelSpec
from tpkd.models.weights import weights_fingerprint

BERT_LARGE = {"layers": 24, "hidden_size": 1024, "heads": 16}
SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}


def test_masked_mean_agrees_with_a_loop():
    states, mask = torch.randn(4, 6, 3, dtype=torch.float64), tokens(4, 6, 9)["attention_mask"]
    for row, kept, mean in zip(states, mask.bool(), masked_mean(states, mask), strict=True):
        # a different order of at most six float64 terms
        torch.testing.assert_close(mean, row[kept].mean(0), rtol=0, atol=1e-14)


def test_built_bert_is_a_sequence_classifier_of_the_library():
    model = build("bert")
    twin = BertForSequenceClassification(BertConfig(**{**SMALL, "intermediate_size": 64}, num_labels=5))
    twin.bert.load_state_dict(model.network.state_dict())
    twin.classifier.load_state_dict(model.head.state_dict())
    inputs = inputs_for("bert")
    assert torch.equal(model.eval()(inputs), twin.eval()(**inputs).logits)
    # In training the draws of dropout stand in the same order at the same rates.
    torch.manual_seed(0)
    ours = model.train()(inputs)
    torch.manual_seed(0)
    assert torch.equal(ours, twin.train()(**inputs).logits)


def test_mean_pooling_and_layer_features_are_masked_means_of_hidden_states():
    model, inputs = build("bert-mean").eval(), inputs_for("bert")
    assert model.network.pooler is None
    states = model.network(**inputs, output_hidden_states=True).hidden_states
    output = model.outputs(inputs, layers=(0, 1, 2))
    kept = inputs["attention_mask"].bool()
    for layer, feature in enumerate(output.layer_features):
        expected = torch.stack([state[row].mean(0) for state, row in zip(states[layer], kept, strict=True)])
        torch.testing.assert_close(feature, expected)
    assert torch.equal(output.features, output.layer_features[2])


def test_what_stands_under_the_padding_does_not_matter():
    for kind in ("bert", "bert-mean"):
        model, inputs = build(kind).eval(), inputs_for("bert")
        hidden = inputs["attention_mask"] == 0
        other = {**inputs, "input_ids": inputs["input_ids"].where(~hidden, 7)}
        for first, second in zip(
            model.outputs(inputs, layers=(1, 2)).layer_features,
            model.outputs(other, layers=(1, 2)).layer_features,
            strict=True,
        ):
            torch.testing.assert_close(first, second)
        torch.testing.assert_close(model(inputs), model(other))


@pytest.mark.parametrize(("options", "parameters"), [({}, 11_170_560), (BERT_LARGE, 335_141_888)])
def test_encoders_have_the_papers_sizes_with_pooler(options, parameters):
    with torch.device("meta"):
        model = build_model(ModelSpec("builtin:bert", num_classes=150, options=options))
    assert sum(parameter.numel() for parameter in model.network.parameters()) == parameters


@pytest.mark.parametrize("options", [{}, BERT_LARGE], ids=["mini", "large"])
def test_the_papers_text_models_take_a_step_at_length_128(options):
    """Appendix E.1: BERT-Mini student and BERT-large teacher, inputs of fixed length 128."""
    model = build_model(ModelSpec("builtin:bert", num_classes=150, options=options))
    inputs = encoder_for("builtin:bert", options=options)(["how much money is in my account"])
    assert inputs["input_ids"].shape == (1, 128)
    before = model.head.bias.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(model(inputs), torch.tensor([3])).backward()
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()])
    assert 0 < norm < torch.inf
    optimizer.step()
    assert not torch.equal(model.head.bias, before)


@pytest.fixture
def folder(tmp_path):
    """A fine-tuned sequence classifier of five classes as its library saves it, in half precision."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SMALL, num_labels=5)).half()
    torch.nn.init.normal_(model.classifier.weight)
    model.save_pretrained(tmp_path / "classifier")
    model.bert.save_pretrained(tmp_path / "encoder")
    DistilBertModel(DistilBertConfig(vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=32)).save_pretrained(
        tmp_path / "distilbert"
    )
    return tmp_path


def test_a_fine_tuned_folder_brings_its_own_head_in_float32(folder):
    model = build_model(ModelSpec(f"hf:{folder / 'classifier'}", num_classes=5)).eval()
    reference = BertForSequenceClassification.from_pretrained(folder / "classifier", dtype=torch.float32).eval()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    inputs = inputs_for("bert")
    assert torch.equal(model(inputs), reference(**inputs).logits)
    assert model.dropout.p == 0.1


def test_an_encoder_folder_gets_the_shared_random_head(folder):
    model = build_model(ModelSpec(f"hf:{folder / 'encoder'}", num_classes=7, seed=3)).eval()
    forced = build_model(ModelSpec(f"hf:{folder / 'classifier'}", num_classes=7, head="random", seed=3)).eval()
    assert weights_fingerprint(model) == weights_fingerprint(forced)
    assert model.head.weight.abs().max() <= 0.04
    reference = BertModel.from_pretrained(folder / "encoder", dtype=torch.float32).eval()
    inputs = inputs_for("bert")
    assert torch.equal(model.outputs(inputs).features, reference(**inputs).pooler_output)


def test_other_architectures_work_through_the_mean(folder):
    model = build_model(ModelSpec(f"hf:{folder / 'distilbert'}", num_classes=3, options={"pooling": "mean"}))
    output = model.outputs(inputs_for("bert"), layers=(0, 2))
    assert output.logits.shape == (3, 3)
    output.logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_dropout_of_a_folder_can_be_set_everywhere(folder):
    options = {"dropout": 0.0}
    model = build_model(ModelSpec(f"hf:{folder / 'classifier'}", num_classes=5, options=options)).train()
    inputs = inputs_for("bert")
    assert torch.equal(model(inputs), model.eval()(inputs))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("classifier", {"num_classes": 6}, "expected a head of 6 classes, found 5; say head: random"),
        ("classifier", {"options": {"pooling": "mean"}}, "not a linear layer on the mean output; say head: random"),
        ("distilbert", {}, "has no weights of a pooler; say pooling: mean"),
        ("nowhere", {}, "cannot be read: No such file or directory"),
    ],
)
def test_folders_that_do_not_fit_are_refused_in_one_line(folder, name, settings, message):
    with pytest.raises(InputError, match=message) as error:
        build_model(ModelSpec(f"hf:{folder / name}", **{"num_classes": 5, **settings}))
    assert str(error.value).startswith(f"hf:{folder / name}: ")
    assert "\n" not in str(error.value)


def test_a_folder_without_some_weights_is_refused(folder):
    from safetensors.torch import load_file, save_file

    file = folder / "encoder" / "model.safetensors"
    weights = load_file(file)
    save_file({name: value for name, value in weights.items() if "pooler" not in name}, file, {"format": "pt"})
    with pytest.raises(InputError, match="has no weights of a pooler; say pooling: mean"):
        build_model(ModelSpec(f"hf:{folder / 'encoder'}", num_classes=5))
    build_model(ModelSpec(f"hf:{folder / 'encoder'}", num_classes=5, options={"pooling": "mean"}))
    save_file({name: value for name, value in weights.items() if "layer.1.output" not in name}, file, {"format": "pt"})
    with pytest.raises(InputError, match=r"has no weights for encoder\.layer\.1\.output\.LayerNorm\.bias"):
        build_model(ModelSpec(f"hf:{folder / 'encoder'}", num_classes=5))


@pytest.mark.parametrize(
    "changes",
    [
        "null",
        "3",
        *("[]", '"bert"', "{", "", "[" * 20_000),
        {"model_type": ["bert"]},
        *({"model_type": 3}, {"model_type": None}, {"model_type": "no-such-kind"}),
        {"model_type": "t5"},
        {"architectures": 3},
        {"architectures": [3]},
        {"hidden_size": "x"},
        {"hidden_size": None},
        {"hidden_size": 0},
        {"hidden_size": 32},
        {"num_hidden_layers": "2"},
        {"num_hidden_layers": -1},
        {"num_hidden_layers": 1},
        {"num_attention_heads": 0},
        {"id2label": 3},
        {"num_labels": "x"},
        {"classifier_dropout": -1},
        {"pad_token_id": 99},
        {"dtype": "boom"},
        {"auto_map": 3},
    ],
    ids=lambda changes: json.dumps(changes)[:40],
)
def test_an_odd_configuration_of_a_folder_is_one_line(folder, changes):
    file = folder / "classifier" / "config.json"
    good = json.loads(file.read_text())
    file.write_text(changes if isinstance(changes, str) else json.dumps({**good, **changes}))
    with pytest.raises(InputError) as error:
        build_model(ModelSpec(f"hf:{folder / 'classifier'}", num_classes=5))
    assert str(error.value).startswith(f"hf:{folder / 'classifier'}: ")
    assert "\n" not in str(error.value)
    assert "above report" not in str(error.value)


def test_a_folder_holds_regular_files_alone(folder):
    file = folder / "classifier" / "config.json"
    file.rename(folder / "moved.json")
    file.symlink_to(folder / "moved.json")  # as the hub's own cache has them
    build_model(ModelSpec(f"hf:{folder / 'classifier'}", num_classes=5))
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(InputError, match=r"config\.json: expected a regular file, found a FIFO$"):
        build_model(ModelSpec(f"hf:{folder / 'classifier'}", num_classes=5))


def test_a_configuration_that_asks_for_tuples_still_gives_features(folder):
    file = folder / "classifier" / "config.json"
    expected = build_model(ModelSpec(f"hf:{folder / 'classifier'}", num_classes=5)).eval()(inputs_for("bert"))
    file.write_text(json.dumps({**json.loads(file.read_text()), "return_dict": False}))
    assert torch.equal(
        build_model(ModelSpec(f"hf:{folder / 'classifier'}", num_classes=5)).eval()(inputs_for("bert")), expected
    )


def test_a_hub_id_is_not_fetched_offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="hf:nobody/no-such-model: cannot be loaded: "):
        build_model(ModelSpec("hf:nobody/no-such-model", num_classes=5))


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_neither_code_nor_pickles_of_a_folder_are_run(folder):
    trap = folder / "ran"
    (folder / "encoder" / "evil.py").write_text(f"open({str(trap)!r}, 'w')\n")
    file = folder / "encoder" / "config.json"
    config = json.loads(file.read_text())
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    for kind in ("bert", "evil"):
        file.write_text(json.dumps({**config, "model_type": kind}))
        try:
            build_model(ModelSpec(f"hf:{folder / 'encoder'}", num_classes=5))
        except InputError:
            assert kind == "evil"  # a known architecture is built from the library's own code
    weights = folder / "classifier" / "model.safetensors"
    weights.unlink()
    (folder / "classifier" / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(trap)))
    with pytest.raises(InputError, match="cannot be loaded: "):
        build_model(ModelSpec(f"hf:{folder / 'classifier'}", num_classes=5))
    assert not trap.exists()


def test_loading_is_silent_and_leaves_the_library_as_it_was(folder, capfd):
    from transformers.utils import logging

    state = logging.get_verbosity(), logging.is_progress_bar_enabled()
    build_model(ModelSpec(f"hf:{folder / 'encoder'}", num_classes=5, options={"pooling": "mean"}))
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == state


def test_published_sentence_encoder_through_its_masked_mean():
    """Float16 weights without a pooler; similar sentences lie nearer than different ones."""
    name = f"hf:{real_data() / 'weights/paraphrase-minilm-l3'}"
    with pytest.raises(InputError, match="has no weights of a pooler; say pooling: mean"):
        build_model(ModelSpec(name, num_classes=150))
    model = build_model(ModelSpec(name, num_classes=150, options={"pooling": "mean"})).eval()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    texts = ["how do i transfer money", "i want to send cash to someone", "will it rain tomorrow"]
    features = model.outputs(encoder_for(name, padding="longest")(texts)).features
    similarity = torch.nn.functional.cosine_similarity(features[:1], features[1:])
    assert similarity[0] > similarity[1] + 0.2
    trained = model.train().outputs(encoder_for(name)(texts), layers=range(4))
    assert [feature.shape for feature in trained.layer_features] == [(3, 384)] * 4


def test_tiny_bert_options_cover_every_size():
    model = build_model(
        ModelSpec("builtin:bert", num_classes=3, options={**TINY_BERT, "intermediate_size": 24, "dropout": 0.0})
    )
    config = model.network.config
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (2, 16, 2)
    assert (config.intermediate_size, config.vocab_size, config.max_position_embeddings) == (24, 50, 32)
    assert [module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)].count(0.0) > 5


@pytest.mark.parametrize(
    ("id2label", "names"),
    [
        ({0: "cat", 1: "dog", 2: "horse"}, ("cat", "dog", "horse")),
        ({0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}, None),
    ],
)
def test_a_sequence_classifier_brings_the_names_of_its_classes(tmp_path, id2label, names):
    config = BertConfig(**SMALL, num_labels=3, id2label=id2label, label2id={name: n for n, name in id2label.items()})
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    assert build_model(ModelSpec(f"hf:{tmp_path}", num_classes=3)).class_names == names
    assert build_model(ModelSpec(f"hf:{tmp_path}", num_classes=3, head="random")).class_names is None
