"""What an injected gradient refuses: second derivatives, a second backward, and transforms."""

import pytest
import torch
from torch.autograd import forward_ad

from strategies import make_pairs
from tpkd.geometry import directions
from tpkd.objectives import create, tpkd_loss

NAMES = ("tpkd", "tpkd-no-ce", "safe-full-kl", "tpkd-no-projection", "compensation-only")


def leaf(tensor):
    return tensor.clone().requires_grad_()


@pytest.mark.parametrize("name", NAMES)
def test_a_second_derivative_is_refused(name):
    z, zt, y = make_pairs("random", 4, 5, seed=17)
    student = leaf(z)
    loss = create(name)(student, zt, y)
    with pytest.raises(RuntimeError, match="create_graph=True"):
        torch.autograd.grad(loss, student, create_graph=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_second_backward_through_the_same_loss_is_refused(name):
    z, zt, y = make_pairs("random", 4, 5, seed=18)
    loss = create(name)(leaf(z), zt, y)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second backward"):
        loss.backward()


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", NAMES)
def test_forward_mode_is_refused_instead_of_giving_zero(name, reduction):
    z, zt, y = make_pairs("random", 4, 5, seed=20)

    def loss(logits):
        return create(name)(logits, zt, y, reduction=reduction)

    refused = pytest.raises(NotImplementedError, match=r"forward-mode differentiation: .* call backward")
    with refused:
        torch.func.jvp(loss, (z,), (torch.ones_like(z),))
    with forward_ad.dual_level():
        with refused:
            loss(forward_ad.make_dual(z, torch.ones_like(z)))
        # A level that has nothing to do with these logits does not matter, nor does a tangent of the teacher.
        assert torch.equal(loss(z), create(name)(z, forward_ad.make_dual(zt, zt), y, reduction=reduction))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap, torch.func.jacrev])
def test_transforms_of_torch_func_are_refused_with_a_way_out(transform, name):
    z, zt, y = make_pairs("random", 4, 5, seed=21)
    with pytest.raises(NotImplementedError, match=r"torch\.func .* tpkd\.directions"):
        transform(lambda logits: create(name)(logits, zt, y))(z)


def test_the_way_out_for_torch_func_gives_the_same_gradient():
    z, zt, y = make_pairs("random", 4, 5, seed=22)
    network, inputs = torch.nn.Linear(5, 5, dtype=torch.float64), z
    tpkd_loss(network(inputs), zt, y).backward()
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    logits, pull_back = torch.func.vjp(lambda p: torch.func.functional_call(network, p, inputs), parameters)
    (found,) = pull_back(directions(logits, zt, y).update / len(y))
    for name, value in network.named_parameters():
        torch.testing.assert_close(found[name], value.grad)
