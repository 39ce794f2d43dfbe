"""Small networks and batches for the timm task."""

import timm
import torch

CLASSES = 6
NETWORK = "test_efficientnet_gn"  # no batch statistics: micro-batches and processes see the gradients of one batch


def network(seed, *, name=NETWORK, dtype=torch.float64, **settings):
    torch.manual_seed(seed)
    model = timm.create_model(name, num_classes=CLASSES, **settings).to(dtype)
    with torch.no_grad():  # timm starts classifiers close to zero, where every student and teacher agree
        for parameter in model.get_classifier().parameters():
            parameter.normal_(std=0.5)
    return model


def images(count, seed=0, dtype=torch.float64, size=16):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def labels(count, seed=1):
    return torch.randint(CLASSES, (count,), generator=torch.Generator().manual_seed(seed))


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_gradients_close(found, expected, tolerance=1e-12):
    """Close for float64 sums taken in another order; and not all zero."""
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )
    assert max(float(gradient.abs().max()) for gradient in expected.values()) > 1e-3
