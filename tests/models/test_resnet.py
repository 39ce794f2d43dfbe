import pytest
import torch
from torch.nn import functional

from models.networks import build, inputs_for, real_data
from tpkd.errors import InputError
from tpkd.models.classifier import extract_features
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.models.weights import load_weights

MEAN, STD = (0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)


def functional_resnet(weights, x, blocks):
    """The architecture once more, from its weights by name and plain functions, in evaluation mode."""

    def norm(x, name):
        scale = weights[f"{name}.weight"] / (weights[f"{name}.running_var"] + 1e-5).sqrt()
        shift = weights[f"{name}.bias"] - weights[f"{name}.running_mean"] * scale
        return x * scale[:, None, None] + shift[:, None, None]

    def convolve(x, name, stride=1):
        kernel = weights[f"{name}.weight"]
        return functional.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)

    x = norm(convolve(x, "conv1"), "bn1").clamp(min=0)
    for stage in (1, 2, 3):
        for block in range(blocks):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = norm(convolve(x, f"{name}.conv1", stride), f"{name}.bn1").clamp(min=0)
            y = norm(convolve(y, f"{name}.conv2"), f"{name}.bn2")
            if f"{name}.downsample.0.weight" in weights:
                x = norm(convolve(x, f"{name}.downsample.0", stride), f"{name}.downsample.1")
            x = (x + y).clamp(min=0)
    return functional.linear(x.mean((2, 3)), weights["fc.weight"], weights["fc.bias"])


@pytest.mark.parametrize(("depth", "blocks"), [(8, 1), (20, 3)])
def test_forward_agrees_with_plain_functions_on_the_weights_by_name(depth, blocks):
    model = build_model(ModelSpec(f"builtin:resnet{depth}", num_classes=7)).double()
    x = inputs_for("resnet").double()
    for _ in range(3):
        model(x)  # gives the running statistics values of their own
    model.eval()
    expected = functional_resnet(model.state_dict(), x, blocks)
    # Folding the normalisation into scale and shift reorders a few dozen float64 roundings a layer.
    torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("depth", "parameters"), [(8, 83_892), (20, 278_324), (56, 861_620)])
def test_sizes_are_those_of_the_published_family(depth, parameters):
    """ResNet-20 and 56 have 0.28 M and 0.86 M parameters at 100 classes; 8 counted by hand."""
    model = build_model(ModelSpec(f"builtin:resnet{depth}", num_classes=100))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize("depth", [2, 7, 9, 18, 34])
def test_other_depths_are_refused(depth):
    with pytest.raises(InputError, match=f"model 'builtin:resnet{depth}': unknown, expected builtin:mlp"):
        build_model(ModelSpec(f"builtin:resnet{depth}", num_classes=10))


def test_stages_halve_the_image_and_layer_features_are_their_means():
    model, x = build("resnet").eval(), inputs_for("resnet")
    stem = model.bn1(model.conv1(x)).relu()
    first = model.layer1(stem)
    features = model.outputs(x, layers=(0, 1, 3)).layer_features
    torch.testing.assert_close(features[0], stem.mean((2, 3)))
    torch.testing.assert_close(features[1], first.mean((2, 3)))
    assert torch.equal(features[2], model.outputs(x).features)


def published():
    return build_model(
        ModelSpec("builtin:resnet56", num_classes=100, weights=real_data() / "weights/cifar100-resnet56.safetensors")
    )


def cifar_test_images(count):
    from tpkd.data.loading import load_dataset

    data = load_dataset("cifar100", "test", root=real_data())
    chosen = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:count].numpy()
    images = torch.from_numpy(data.take(chosen)).permute(0, 3, 1, 2).float() / 255
    labels = torch.from_numpy(data.labels[chosen])
    return (images - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None], labels


def test_published_weights_reach_their_published_accuracy():
    """72.63 % on all 10,000 test images (7,263 right); on 1,000 of them one standard deviation is 1.4 points."""
    model = published()
    images, labels = cifar_test_images(1000)
    logits = model.classifier(extract_features(model, images.split(250)))
    accuracy = (logits.argmax(-1) == labels).double().mean()
    assert abs(accuracy - 0.7263) < 0.04


def test_published_weights_serve_as_a_backbone_for_other_classes():
    file = real_data() / "weights/cifar100-resnet56.safetensors"
    backbone = build_model(ModelSpec("builtin:resnet56", num_classes=10, weights=file, head="random"))
    whole = published()
    x = inputs_for("resnet")
    assert torch.equal(backbone.eval().outputs(x).features, whole.eval().outputs(x).features)
    assert backbone.num_classes == 10
    with pytest.raises(InputError, match=r"fc\.(weight|bias): expected shape"):
        load_weights(build_model(ModelSpec("builtin:resnet56", num_classes=10)), file)
