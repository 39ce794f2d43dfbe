import re

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from tpkd.errors import InputError
from tpkd.models.classifier import extract_features
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.models.vision import TimmClassifier
from tpkd.models.weights import load_weights, weights_fingerprint

SIZES = {"pit_b_224": 73_764_840, "volo_d2_224": 58_678_336}


@pytest.mark.parametrize(("name", "parameters"), SIZES.items())
def test_the_papers_vision_models_take_a_step_at_224(name, parameters):
    """Appendix E.1: PiT-B student and VOLO-D2 teacher, inputs 224 × 224; sizes 73.8 M and 58.7 M at 1,000 classes."""
    model = build_model(ModelSpec(f"timm:{name}", num_classes=1000))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    before = model.classifier.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    output = model.outputs(torch.randn(2, 3, 224, 224))
    assert output.logits.shape == (2, 1000)
    assert output.features.shape == (2, model.feature_size)
    nn.functional.cross_entropy(output.logits, torch.tensor([3, 4])).backward()
    assert [key for key, parameter in model.named_parameters() if parameter.grad is None] == []
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()])
    assert 0 < norm < torch.inf
    optimizer.step()
    assert not torch.equal(model.classifier.weight, before)


def small(num_classes=5, **settings):
    return build_model(ModelSpec("timm:pit_ti_224", num_classes=num_classes, **settings))


def images(rows=2):
    return torch.randn(rows, 3, 224, 224, generator=torch.Generator().manual_seed(0))


def test_features_are_what_enters_the_classifier():
    model = small().eval()
    output = model.outputs(images())
    network = model.network
    assert model.has_linear_head
    assert torch.equal(output.logits, model.classifier(output.features))
    assert torch.equal(output.logits, model(images()))
    assert torch.equal(output.features, network.forward_head(network.forward_features(images()), pre_logits=True))
    assert torch.equal(extract_features(model, [images()]), output.features)
    assert not model.classifier._forward_pre_hooks


def test_the_classifier_can_be_replaced():
    model = small().eval()
    features = model.outputs(images()).features
    head = nn.Linear(model.feature_size, 3)
    model.replace_classifier(head)
    assert model.classifier is head
    assert model.num_classes == 3
    assert torch.equal(model(images()), head(features))


def test_an_auxiliary_head_is_kept_until_the_classifier_is_replaced():
    """VOLO adds half the largest answer of a second head over the tokens; a probe fitted on features stands alone."""
    model = build_model(ModelSpec("timm:volo_d1_224", num_classes=4)).eval()
    output = model.outputs(images(1))
    assert not model.has_linear_head
    assert not torch.equal(output.logits, model.classifier(output.features))
    assert torch.equal(output.logits, model.network(images(1)))
    assert model.head_names == {
        f"network.{head}.{part}" for head in ("head", "aux_head") for part in ("weight", "bias")
    }
    model.replace_classifier(nn.Linear(model.feature_size, 6))
    assert model.has_linear_head
    assert torch.equal(model(images(1)), model.classifier(output.features))


def test_published_names_load_with_and_without_their_head(tmp_path):
    saved = small(num_classes=9, seed=1)
    file = tmp_path / "published.safetensors"
    save_file(saved.network.state_dict(), file)
    whole = small(num_classes=9, seed=2, weights=file)
    assert weights_fingerprint(whole) == weights_fingerprint(saved)
    backbone = small(num_classes=5, seed=2, weights=file, head="random").eval()
    assert torch.equal(backbone.outputs(images()).features, saved.eval().outputs(images()).features)
    with pytest.raises(InputError, match=r"network\.head\.(weight|bias): expected shape"):
        small(num_classes=5, weights=file)


def test_a_model_is_a_pure_function_of_its_seed():
    state = torch.get_rng_state()
    assert (
        weights_fingerprint(small(seed=1)) == weights_fingerprint(small(seed=1)) != weights_fingerprint(small(seed=2))
    )
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("pit_b_242", {}, r"timm:pit_b_242: timm .* has no model of this name; did you mean pit_b_224\?"),
        ("pit_ti_distilled_224", {}, "expected a classifier that is one linear layer, found tuple"),
        ("pit_ti_224", {"options": {"checkpoint_path": "x"}}, "checkpoint_path: unknown option, expected pretrained"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(name, settings, message):
    with pytest.raises(InputError, match=message) as error:
        build_model(ModelSpec(f"timm:{name}", num_classes=5, **settings))
    assert "\n" not in str(error.value)


def test_weights_that_cannot_be_fetched_are_one_line_that_names_the_key(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        InputError, match=r"options\.pretrained: the weights of timm:pit_ti_224 cannot be fetched"
    ) as error:
        small(options={"pretrained": True})
    assert "\n" not in str(error.value)
    assert "weights: FILE" in str(error.value)


@pytest.mark.parametrize("whole", [True, False], ids=["our names", "timm's names"])
def test_a_volo_without_its_auxiliary_head_loads(whole, tmp_path):
    """What a student with a replaced head is saved as; its logits are those of the head alone."""
    saved = build_model(ModelSpec("timm:volo_d1_224", num_classes=4, seed=1)).eval()
    saved.network.aux_head = None
    file = tmp_path / "student.safetensors"
    save_file((saved if whole else saved.network).state_dict(), file)
    model = build_model(ModelSpec("timm:volo_d1_224", num_classes=4, weights=file)).eval()
    assert model.has_linear_head
    assert torch.equal(model(images(1)), saved(images(1)))
    assert weights_fingerprint(model) == weights_fingerprint(saved)


def test_an_auxiliary_head_that_would_be_lost_is_refused(tmp_path):
    """With it the logits are others."""
    saved = build_model(ModelSpec("timm:volo_d1_224", num_classes=4, seed=1))
    file = tmp_path / "volo.safetensors"
    save_file(saved.state_dict(), file)
    model = build_model(ModelSpec("timm:volo_d1_224", num_classes=4))
    model.replace_classifier(nn.Linear(model.feature_size, 4))
    with pytest.raises(InputError, match=r"unexpected network\.aux_head\.bias, network\.aux_head\.weight"):
        load_weights(model, file)


def test_drop_rates_reach_the_network():
    model = small(options={"drop_rate": 0.9, "drop_path_rate": 0.2}).train()
    # 192 features at rate 0.9: fewer than half dropped is impossible in practice
    assert (model.outputs(images()).features == 0).double().mean() > 0.5
    assert any(
        re.search("drop_path", key) and part.__class__.__name__ == "DropPath" for key, part in model.named_modules()
    )


def test_layer_features_are_not_offered():
    model = small()
    assert isinstance(model, TimmClassifier)
    with pytest.raises(ValueError, match="layers: expected none, because this network offers no layer features, got 0"):
        model.outputs(images(), layers=(0,))


@pytest.mark.parametrize(("num_classes", "names"), [(3, ("cat", "dog", "horse")), (4, None)])
def test_published_weights_bring_the_names_of_their_classes(monkeypatch, num_classes, names):
    create = timm.create_model

    def published(name, *, pretrained, **settings):
        network = create(name, pretrained=False, **settings)
        network.pretrained_cfg = {"num_classes": 3, "label_names": ["cat", "dog", "horse"]}
        return network

    monkeypatch.setattr(timm, "create_model", published)
    model = build_model(ModelSpec("timm:resnet10t", num_classes=num_classes, options={"pretrained": True}))
    assert model.class_names == names
    assert build_model(ModelSpec("timm:resnet10t", num_classes=3)).class_names is None


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "resnet18", "volo_d1_224"])
def test_rates_of_layers_and_decay_are_those_of_timms_optimisers(name):
    from timm.optim import param_groups_layer_decay

    from tpkd.config.optimizers import AdamWConfig
    from tpkd.training.optimizer import build_optimizer, layer_scales

    model = build_model(ModelSpec(f"timm:{name}", num_classes=5))
    listed = getattr(model.network, "no_weight_decay", set)()
    theirs = param_groups_layer_decay(model.network, 0.05, listed, layer_decay=0.75)
    config = AdamWConfig(learning_rate=0.1, weight_decay=0.05)
    ours = build_optimizer(config, model, layer_scales(model, 0.75)).param_groups
    expected, found = (
        {parameter: (group["lr_scale"], group["weight_decay"]) for group in groups for parameter in group["params"]}
        for groups in (theirs, ours)
    )
    assert found == expected
    assert found[model.classifier.weight] == (1.0, 0.05)
    assert len({scale for scale, _ in found.values()}) > 5


def test_a_network_whose_layers_timm_does_not_count_goes_by_its_stages():
    depths = small().parameter_depths()
    assert not hasattr(small().network, "group_matcher")
    assert {depths[f"network.{name}"] for name in ("pos_embed", "cls_token", "patch_embed.conv.weight")} == {4}
    for name, depth in depths.items():
        if name.startswith("network.transformers."):
            assert depth == 3 - int(name.split(".")[2])
    assert depths["network.head.weight"] == depths["network.norm.weight"] == 0
