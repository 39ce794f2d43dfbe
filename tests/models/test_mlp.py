import numpy as np
import pytest
import torch

from models.networks import build, inputs_for
from tpkd.errors import InputError
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec


def test_forward_is_matrix_products_with_relu_between():
    model = build("mlp").double()
    x = inputs_for("mlp").double()
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    state = x.numpy()
    for i in range(2):
        state = np.maximum(state @ weights[f"layers.{i}.weight"].T + weights[f"layers.{i}.bias"], 0)
    logits = state @ weights["fc.weight"].T + weights["fc.bias"]
    # float64 sums of at most 12 products of numbers near one
    np.testing.assert_allclose(model(x).detach(), logits, atol=1e-14)


def test_images_are_flattened():
    model = build_model(ModelSpec("builtin:mlp", num_classes=3, options={"input_size": 3 * 4 * 4}))
    images = torch.randn(2, 3, 4, 4)
    assert torch.equal(model(images), model(images.reshape(2, 48)))


def test_dropout_acts_in_training_only():
    model = build_model(
        ModelSpec("builtin:mlp", num_classes=3, options={"input_size": 4, "hidden": [400], "dropout": 0.5})
    )
    x = torch.randn(8, 4)
    assert torch.equal(model.eval()(x), model(x))
    dropped = (model.train().outputs(x).features == 0).double().mean()
    kept = (model.eval().outputs(x).features == 0).double().mean()
    # half of what ReLU leaves; 3,200 draws, so six standard deviations are 0.05
    assert abs(dropped - (kept + (1 - kept) / 2)) < 0.05


def test_without_hidden_layers_it_is_a_linear_classifier():
    model = build_model(ModelSpec("builtin:mlp", num_classes=3, options={"input_size": 4, "hidden": []}))
    x = torch.randn(2, 4)
    assert torch.equal(model.outputs(x).features, x)
    assert torch.equal(model(x), model.fc(x))


def test_a_residual_network_starts_as_a_linear_model_and_has_one_linear_head():
    model = build_model(
        ModelSpec("builtin:mlp", num_classes=3, options={"input_size": 4, "hidden": [8], "residual": True})
    )
    x = torch.randn(5, 4)
    linear = torch.nn.functional.linear(x, model.fc.weight[:, :4], model.fc.bias)
    torch.testing.assert_close(model(x), linear)
    output = model.outputs(x)
    assert torch.equal(model.classifier(output.features), output.logits)
    assert (model.probe_size, model.feature_size) == (4, 12)
    # What its layers add, once their weights are not 0, is not linear.
    torch.nn.init.ones_(model.fc.weight[:, 4:])
    hidden = torch.relu(model.layers[0](x))
    torch.testing.assert_close(model(x), linear + hidden.sum(1, keepdim=True))


def test_a_residual_network_without_layers_is_refused():
    with pytest.raises(InputError, match="residual: expected false without hidden layers"):
        build_model(ModelSpec("builtin:mlp", num_classes=3, options={"hidden": [], "residual": True}))
