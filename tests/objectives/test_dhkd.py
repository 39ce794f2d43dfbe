"""DHKD: the released presets, its second head, alignment, and what a checkpoint of it holds."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from objectives.cases import make_inputs
from tpkd.objectives import DHKD, BinaryKLNorm, align_gradients, auxiliary_head, create


def test_presets_are_the_two_released_settings():
    cifar, imagenet = DHKD(), DHKD(preset="imagenet-release")
    assert (cifar.head, cifar.align, cifar.alpha, cifar.cutoff) == ("nonlinear", True, 1.0, 0.0)
    assert (imagenet.head, imagenet.align, imagenet.alpha, imagenet.cutoff) == ("linear", False, 0.1, 0.5)
    assert cifar.temperature == imagenet.temperature == 2.0


def test_single_settings_override_the_preset():
    objective = DHKD(preset="imagenet-release", align=True, alpha=0.0, cutoff=0.0)
    assert (objective.head, objective.align, objective.alpha, objective.cutoff) == ("linear", True, 0.0, 0.0)


def test_needs_follow_the_settings():
    always = {"labels", "teacher_logits", "features"}
    assert DHKD().needs == always | {"objective_gradients"}
    assert DHKD(preset="imagenet-release").needs == always | {"epoch", "num_epochs"}
    assert DHKD(head="linear", align=False).needs == always
    assert not DHKD().separable
    assert not DHKD(align=False).separable
    assert DHKD(preset="imagenet-release").separable


def test_imagenet_release_stops_distilling_at_half_of_the_epochs():
    objective = DHKD(preset="imagenet-release")
    batch = make_inputs().batch()
    weights = [objective.losses(replace(batch, epoch=epoch))["distillation"].item() for epoch in (1, 49, 50, 100)]
    assert weights[0] == weights[1] > 0
    assert weights[2:] == [0.0, 0.0]


def test_heads_are_as_released():
    assert isinstance(auxiliary_head("linear", 6, 4), nn.Linear)
    head = auxiliary_head("nonlinear", 6, 4)
    assert [type(layer) for layer in head] == [nn.Linear, nn.Dropout, nn.BatchNorm1d, nn.ReLU, nn.Linear]
    assert (head[0].in_features, head[0].out_features, head[4].in_features, head[4].out_features) == (6, 200, 200, 4)
    assert head[1].p == 0.1
    with pytest.raises(ValueError, match="head: expected 'linear' or 'nonlinear', got 'mlp'"):
        auxiliary_head("mlp", 6, 4)


def test_head_exists_from_its_sizes_or_from_the_first_batch():
    assert DHKD(feature_size=4, num_classes=5).modules()["head"][0].in_features == 4
    objective = DHKD()
    with pytest.raises(RuntimeError, match="feature_size and num_classes"):
        objective.modules()
    assert objective.state_dict() == {}
    objective.losses(make_inputs().batch())
    assert objective.modules()["head"][4].out_features == 5


@pytest.mark.parametrize("head", ["linear", "nonlinear"])
@pytest.mark.parametrize("sizes", [{}, {"feature_size": 4, "num_classes": 5}], ids=["built-late", "built-early"])
def test_state_restores_the_head_whether_or_not_it_exists(head, sizes):
    used = DHKD(head=head, feature_size=4, num_classes=5)
    used.losses(make_inputs(dtype=torch.float32).batch())
    fresh = DHKD(head=head, **sizes)
    fresh.load_state_dict(used.state_dict())
    assert fresh.state_dict().keys() == used.state_dict().keys()
    for name, value in used.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value)


def test_a_state_saved_before_the_first_batch_loads():
    DHKD().load_state_dict(DHKD().state_dict())


def test_a_state_of_another_head_is_refused():
    linear = DHKD(head="linear", feature_size=4, num_classes=5)
    with pytest.raises(ValueError, match="state: expected the weights of a nonlinear head, got head"):
        DHKD().load_state_dict(linear.state_dict())


def test_labels_train_the_main_head_and_the_teacher_trains_the_second():
    """Each head gets one of the two losses; the features get both."""
    inputs = make_inputs()
    features = inputs.features.clone().requires_grad_()
    main = nn.Linear(4, 5).double()
    objective = DHKD()
    losses = objective.losses(replace(inputs, student=main(features), features=features).batch())
    second = objective.modules()["head"]
    for name, own, other in (("label", main, second), ("distillation", second, main)):
        gradients = torch.autograd.grad(
            losses[name], [features, *own.parameters(), *other.parameters()], retain_graph=True, allow_unused=True
        )
        count = len(list(own.parameters()))
        assert all(gradient is not None for gradient in gradients[: 1 + count])
        assert all(gradient is None for gradient in gradients[1 + count :])


def test_ignored_rows_do_not_reach_the_batch_statistics():
    inputs = make_inputs()
    ignored = torch.arange(12) < 4
    broken = inputs.map(lambda tensor: tensor.masked_fill(ignored.unsqueeze(-1), torch.nan))
    broken = replace(broken, labels=inputs.labels.masked_fill(ignored, -100))
    means = []
    for batch in (inputs.rows(~ignored).batch(), broken.batch()):
        torch.manual_seed(0)  # the same head and the same dropout mask
        objective = DHKD(feature_size=4, num_classes=5)
        objective.losses(batch)
        means.append(objective.modules()["head"][2].running_mean)
    assert torch.equal(*means)
    assert means[0].abs().max() > 0


def test_alignment_switches_with_the_setting():
    label, distillation = torch.tensor([1.0, 0.0]), torch.tensor([-2.0, 1.0])
    gradients = {"label": label, "distillation": distillation}
    assert torch.equal(DHKD().combine(gradients), align_gradients(label, distillation))
    assert torch.equal(DHKD(align=False).combine(gradients), label + distillation)


def test_alignment_with_a_zero_label_gradient_is_finite():
    assert align_gradients(torch.zeros(3), torch.ones(3)).tolist() == [1, 1, 1]
    assert align_gradients(torch.zeros(3), -torch.ones(3)).tolist() == [-1, -1, -1]


def test_binary_kl_norm_is_stable_where_the_release_overflows():
    a = torch.tensor([[34.0, -40.0, 1000.0]], requires_grad=True)
    loss = BinaryKLNorm()(a, torch.zeros(1, 3))
    loss.backward()
    # T|d|/2 - T^2 log 2 for large differences, slope T/2.
    expected = sum(abs(d) - 4 * torch.log(torch.tensor(2.0)) for d in (34, -40, 1000))
    torch.testing.assert_close(loss.detach(), expected)
    torch.testing.assert_close(a.grad, torch.tensor([[1.0, -1.0, 1.0]]))


def test_binary_kl_norm_keeps_the_digits_of_small_differences():
    for difference in (1e-3, 1e-5):
        a = torch.full((1, 3), difference, dtype=torch.float64)
        found = BinaryKLNorm()(a, torch.zeros_like(a))
        torch.testing.assert_close(found.item(), 3 * difference**2 / 8, rtol=1e-6, atol=0)


def test_half_precision_features_meet_a_float32_head():
    inputs = make_inputs(dtype=torch.float16)
    objective = DHKD(feature_size=4, num_classes=5)
    assert all(loss.dtype == torch.float32 for loss in objective.losses(inputs.batch()).values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "cifar"}, "preset: expected one of cifar-release, imagenet-release, got 'cifar'"),
        ({"head": "mlp"}, "head: expected 'linear' or 'nonlinear', got 'mlp'"),
        ({"divergence": "kl"}, "divergence: expected one of binary-kl-norm, binary-kl, got 'kl'"),
        ({"alpha": -1.0}, "alpha: expected a nonnegative finite weight"),
        ({"ce_weight": -1.0}, "ce_weight: expected a nonnegative finite weight"),
        ({"temperature": 0.0}, "temperature: expected a positive finite number"),
        ({"cutoff": 1.5}, "cutoff: expected a share of the epochs, or 0 for never, got 1.5"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        create("dhkd", **settings)


def test_features_that_do_not_fit_are_refused():
    inputs = make_inputs()
    with pytest.raises(ValueError, match=r"features: expected \(12, D\) beside the logits, got \(11, 4\)"):
        DHKD().losses(replace(inputs, features=inputs.features[1:]).batch())
    positions = replace(inputs, student=torch.zeros(12, 5, 2), labels=torch.zeros(12, 2).long())
    with pytest.raises(ValueError, match=r"student_logits: expected \(N, K\) for the two heads of DHKD"):
        DHKD().losses(replace(positions, teacher=torch.zeros(12, 5, 2)).batch())
