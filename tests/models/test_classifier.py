import pytest
import torch
from torch import nn

from models.networks import KINDS, build, inputs_for
from tpkd.models.classifier import ModelOutput, extract_features


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [False, True])
def test_logits_are_exactly_the_classifier_of_the_features(kind, training):
    """In training too: features stand after the dropout, so a second head sees what the first one saw."""
    model = build(kind).train(training)
    output = model.outputs(inputs_for(kind))
    assert isinstance(output, ModelOutput)
    assert model.has_linear_head
    assert output.features.shape == (3, model.feature_size)
    assert output.logits.shape == (3, model.num_classes) == (3, 5)
    assert torch.equal(output.logits, model.classifier(output.features))


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_gives_the_same_logits_as_outputs(kind):
    model, inputs = build(kind).eval(), inputs_for(kind)
    layers = range(len(model.layer_sizes))
    assert torch.equal(model(inputs), model.outputs(inputs, layers=layers).logits)


@pytest.mark.parametrize("kind", KINDS)
def test_layer_features_have_the_announced_sizes_and_carry_gradients(kind):
    model = build(kind).eval()
    layers = tuple(range(len(model.layer_sizes)))
    features = model.outputs(inputs_for(kind), layers=layers).layer_features
    assert [tuple(feature.shape) for feature in features] == [(3, size) for size in model.layer_sizes]
    features[-1].sum().backward()
    assert any(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_counted_like_a_list(kind):
    model, inputs = build(kind).eval(), inputs_for(kind)
    count = len(model.layer_sizes)
    last, counted, first = model.outputs(inputs, layers=(-1, count - 1, 0)).layer_features
    assert torch.equal(last, counted)
    assert last.shape != first.shape or not torch.equal(last, first)
    with pytest.raises(ValueError, match=rf"layers: expected layers 0 to {count - 1}, got {count}"):
        model.outputs(inputs, layers=(count,))


@pytest.mark.parametrize("kind", KINDS)
def test_the_classifier_can_be_replaced_by_one_of_other_classes(kind):
    model, inputs = build(kind).eval(), inputs_for(kind)
    before = model.outputs(inputs)
    head = nn.Linear(model.feature_size, 9)
    model.replace_classifier(head)
    after = model.outputs(inputs)
    assert model.classifier is head
    assert model.num_classes == 9
    assert torch.equal(after.features, before.features)
    assert torch.equal(after.logits, head(before.features))
    with pytest.raises(ValueError, match=f"linear: expected {model.feature_size} input features, got 4"):
        model.replace_classifier(nn.Linear(4, 9))


@pytest.mark.parametrize("kind", KINDS)
def test_a_replaced_classifier_takes_the_dtype_of_the_network(kind):
    model = build(kind).double()
    model.replace_classifier(nn.Linear(model.feature_size, 7))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}


@pytest.mark.parametrize("kind", KINDS)
def test_head_names_are_the_parameters_whose_shape_depends_on_the_classes(kind):
    few, many = (build(kind, num_classes=count).state_dict() for count in (5, 6))
    differing = {name for name in few if few[name].shape != many[name].shape}
    assert build(kind).head_names == differing


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_gets_a_gradient(kind):
    """Data parallelism refuses a network with idle parameters."""
    model = build(kind)
    model(inputs_for(kind)).logsumexp(-1).sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("kind", KINDS)
def test_extracted_features_are_those_of_evaluation_and_modes_stay(kind):
    model = build(kind).train()
    frozen = next(module for module in model.modules() if not list(module.children()))
    frozen.eval()
    modes = {name: module.training for name, module in model.named_modules()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    batches = [inputs_for(kind, rows=2, seed=1), inputs_for(kind, rows=1, seed=2)]
    features = extract_features(model, batches)
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    assert not features.requires_grad
    expected = torch.cat([model.eval().outputs(batch).features for batch in batches])
    assert torch.equal(features, expected)


def test_inputs_of_the_wrong_kind_are_refused_by_name():
    with pytest.raises(ValueError, match="inputs: expected a tensor, got dict with input_ids, attention_mask"):
        build("resnet")(inputs_for("bert"))
    with pytest.raises(ValueError, match="inputs: expected input_ids and attention_mask, got a tensor"):
        build("bert")(inputs_for("mlp"))
    with pytest.raises(ValueError, match="inputs: expected input_ids and attention_mask, got input_ids"):
        build("bert")({"input_ids": torch.ones(1, 3, dtype=torch.int64)})
    with pytest.raises(ValueError, match="inputs: expected 12 numbers per example, got 13"):
        build("mlp")(torch.zeros(2, 13))
    with pytest.raises(ValueError, match="inputs: expected at most 32 tokens, got 33"):
        build("bert")({name: torch.ones(1, 33, dtype=torch.int64) for name in ("input_ids", "attention_mask")})
