import copy

import numpy as np
import pytest
import torch
from torch import nn

from parameter_space.networks import busy_network, dense_jacobian, tanh_network
from tpkd.parameter_space import (
    certify,
    network_logits,
    parameter_conclusions,
    parameter_gradients,
)
from tpkd.parameter_space.vjp import BatchJacobian, as_found, displaced, trainable_parameters


class Recurrent(nn.Module):
    """A layer that keeps its weights in a list of its own beside the parameters."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Tied(nn.Module):
    """One matrix used twice, a frozen one and one that no output depends on."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(4, 3).requires_grad_(False)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.frozen(self.second(self.first(x).tanh()))


class SparseEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4, sparse=True)
        self.head = nn.Linear(4, 3)

    def forward(self, tokens):
        return self.head(self.table(tokens).mean(1))


NETWORKS = {
    "tanh": (lambda: tanh_network(4, 3, seed=0), torch.randn(6, 4, dtype=torch.float64)),
    "busy": (lambda: busy_network(3), torch.randn(6, 1, 5, 5, dtype=torch.float64)),
    "recurrent": (lambda: Recurrent().double(), torch.randn(6, 5, 3, dtype=torch.float64)),
    "tied": (lambda: Tied().double(), torch.randn(6, 4, dtype=torch.float64)),
    "sparse": (lambda: SparseEmbedding().double(), torch.randint(7, (6, 5))),
}


@pytest.mark.parametrize("microbatch", [None, 1, 4, 6, 100])
@pytest.mark.parametrize("name", NETWORKS)
def test_products_are_those_of_the_dense_jacobian_for_any_microbatch(name, microbatch):
    build, inputs = NETWORKS[name]
    model = build()
    cotangents = torch.randn(4, 6, 3, dtype=torch.float64) * torch.tensor([1.0, 1e-12, 1e9, 0.0]).view(4, 1, 1)
    logits, jacobian = dense_jacobian(model, inputs)
    products = BatchJacobian(model, inputs, microbatch=microbatch).products(cotangents)
    truth = np.einsum("mnk,nkp->mp", cotangents.numpy(), jacobian)
    assert products.dtype == torch.float64
    for found, expected in zip(products.numpy(), truth, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * max(abs(expected).max(), 1e-300))
    np.testing.assert_allclose(network_logits(model, inputs, microbatch=microbatch), logits, atol=1e-13)


@pytest.mark.parametrize("microbatch", [None, 2])
@pytest.mark.parametrize("hidden", [7, 400])
def test_grams_are_the_inner_products_of_the_products(hidden, microbatch):
    """400 x 400 weights are more than one chunk of the cast to float64, and no multiple of it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 3)).double()
    inputs = torch.randn(5, hidden, dtype=torch.float64)
    groups = [torch.randn(2, 5, 3, dtype=torch.float64), 1e-100 * torch.randn(1, 5, 3, dtype=torch.float64)]
    jacobian = BatchJacobian(model, inputs, microbatch=microbatch)
    for gram, group in zip(jacobian.grams(groups), groups, strict=True):
        products = jacobian.products(group).numpy()
        np.testing.assert_allclose(gram, products @ products.T, rtol=1e-12)


class Counted(torch.autograd.Function):
    """Counts how often it is passed forwards and backwards."""

    passes: list[str] = []  # noqa: RUF012 (torch.autograd.Function has no instances to hold it)

    @staticmethod
    def forward(ctx, x):
        Counted.passes.append("forward")
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        Counted.passes.append("backward")
        return gradient


@pytest.mark.parametrize(("microbatch", "forward"), [(None, 1), (6, 1), (2, 6)])
def test_a_certificate_takes_four_backward_passes_over_the_batch_and_one_or_two_forward(microbatch, forward):
    model, inputs = tanh_network(4, 5, seed=0), torch.randn(6, 4).double()
    Counted.passes.clear()
    certify(
        model,
        inputs,
        torch.randn(6, 5),
        torch.arange(6) % 5,
        microbatch=microbatch,
        forward=lambda model, x: Counted.apply(model(x)),
    )
    assert Counted.passes.count("forward") == forward
    assert Counted.passes.count("backward") == 4 * (6 // (microbatch or 6))


def snapshot(model):
    return {
        "state": copy.deepcopy(model.state_dict()),
        "flags": [module.training for module in model.modules()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "requires": [p.requires_grad for p in model.parameters()],
        "identities": [id(t) for t in (*model.parameters(), *model.buffers())],
        "random": torch.get_rng_state(),
    }


def assert_same(before, after):
    assert before["flags"] == after["flags"]
    assert before["requires"] == after["requires"]
    assert before["identities"] == after["identities"]
    assert torch.equal(before["random"], after["random"])
    for name, value in before["state"].items():
        assert torch.equal(value, after["state"][name]), name
    for old, new in zip(before["gradients"], after["gradients"], strict=True):
        assert (old is None and new is None) or torch.equal(old, new)


class Restless(nn.Module):
    """Changes its buffers and draws random numbers even in eval mode."""

    def __init__(self):
        super().__init__()
        self.inner = busy_network(3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("replaced", torch.zeros(2))
        self.register_buffer("lazy", None)

    def forward(self, x):
        self.calls += 1
        self.replaced = self.replaced + 1
        self.lazy = torch.ones(1)
        return nn.functional.dropout(self.inner(x), 0.3, training=True)


@pytest.mark.parametrize("build", [lambda: busy_network(3), Restless])
def test_a_network_is_left_as_it_was_found(build):
    model = build().train()
    next(iter(model.children())).eval()  # flags that differ between layers
    inputs, teacher, labels = torch.randn(6, 1, 5, 5).double(), torch.randn(6, 3), torch.randint(3, (6,))
    model(inputs).sum().backward()
    first = next(model.parameters())
    first.grad = None
    first.requires_grad_(False)
    before = snapshot(model)
    for call in (certify, parameter_gradients):
        call(model, inputs, teacher, labels, microbatch=4)
        assert_same(before, snapshot(model))
    parameter_conclusions(model, inputs, teacher, labels, 0.1, microbatch=4)
    assert_same(before, snapshot(model))


def test_a_network_is_left_as_it_was_found_when_its_forward_fails():
    model, inputs = Restless().train(), torch.randn(2, 1, 5, 5).double()
    before = snapshot(model)

    def fails(model, inputs):
        model(inputs)
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        network_logits(model, inputs, forward=fails)
    assert_same(before, snapshot(model))
    assert model.lazy is None


def test_eval_mode_is_what_runs():
    model, inputs = busy_network(3).train(), torch.randn(6, 1, 5, 5).double()
    expected = copy.deepcopy(model).eval()(inputs)
    assert torch.equal(network_logits(model, inputs), expected)


def test_logits_and_products_of_a_network_that_draws_in_eval_mode_see_the_same_draws():
    torch.manual_seed(3)
    model, inputs = Restless(), torch.randn(6, 1, 5, 5).double()
    cotangents = torch.ones(1, 6, 3, dtype=torch.float64)
    assert torch.equal(network_logits(model, inputs), network_logits(model, inputs))
    assert torch.equal(
        BatchJacobian(model, inputs).products(cotangents), BatchJacobian(model, inputs).products(cotangents)
    )


def test_products_work_where_the_caller_has_switched_gradients_off():
    model, inputs = tanh_network(4, 3, seed=0), torch.randn(2, 4).double()
    cotangents = torch.randn(1, 2, 3).double()
    expected = BatchJacobian(model, inputs).products(cotangents)
    with torch.no_grad():
        assert torch.equal(BatchJacobian(model, inputs).products(cotangents), expected)
    with torch.inference_mode():
        assert torch.equal(BatchJacobian(model, inputs).products(cotangents), expected)
        assert torch.equal(BatchJacobian(model, 1 * inputs).products(1 * cotangents), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_network_runs_in_its_own_dtype_and_tiny_directions_do_not_underflow(dtype):
    seen = []

    def forward(model, inputs):
        logits = model(inputs)
        seen.append(logits.dtype)
        return logits

    model, inputs = tanh_network(4, 3, seed=0, dtype=dtype), torch.randn(6, 4).to(dtype)
    cotangents = 1e-30 * torch.randn(1, 6, 3).double()
    products = BatchJacobian(model, inputs, forward=forward, microbatch=2).products(cotangents)
    wide = copy.deepcopy(model).double()
    truth = BatchJacobian(wide, inputs.double()).products(cotangents)
    assert seen == [dtype] * 3
    # Two layers of sums over at most 16 terms, each rounded to the network's dtype.
    assert (products - truth).norm() <= 16 * torch.finfo(dtype).eps * truth.norm()


def test_the_sum_over_microbatches_is_in_float64():
    """Float32 would lose every second addend of 1 + 2^-24 + 2^-24 + ..."""
    model = nn.Linear(1, 3, bias=False)
    inputs = torch.cat([torch.ones(1, 1), torch.full((1000, 1), 2.0**-24)])
    products = BatchJacobian(model, inputs, microbatch=1).products(torch.ones(1, 1001, 3))
    assert torch.equal(products, torch.full((1, 3), 1 + 1000 * 2.0**-24, dtype=torch.float64))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 3), nn.Linear(5, 3)

    def forward(self, left, right=None, scale=1.0):
        return {"logits": self.a(left) + scale * self.b(right)}


def test_inputs_may_be_a_tuple_or_a_mapping_and_outputs_anything_with_forward():
    model, left, right = TwoInputs(), torch.randn(5, 2), torch.randn(5, 5)
    cotangents = torch.randn(2, 5, 3).double()
    expected = torch.cat(
        [
            torch.einsum("mnk,nd->mkd", cotangents, left.double()).flatten(1),
            cotangents.sum(1),
            2 * torch.einsum("mnk,nd->mkd", cotangents, right.double()).flatten(1),
            2 * cotangents.sum(1),
        ],
        dim=1,
    )
    by_name = BatchJacobian(
        model,
        {"left": left, "right": right, "scale": 2.0},
        microbatch=2,
        forward=lambda model, inputs: model(**inputs)["logits"],
    ).products(cotangents)
    by_position = BatchJacobian(
        model, (left, right, torch.tensor(2.0)), microbatch=2, forward=lambda model, inputs: model(*inputs)["logits"]
    ).products(cotangents)
    assert torch.allclose(by_name, expected, atol=1e-5)
    assert torch.equal(by_position, by_name)

    class Bare(TwoInputs):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs)["logits"]

    bare = Bare()
    assert torch.equal(network_logits(bare, (left, right)), network_logits(bare, {"left": left, "right": right}))


def test_displaced_parameters_come_back_bit_for_bit_even_after_an_error():
    model = Tied()
    before = copy.deepcopy(model.state_dict())
    count = sum(p.numel() for p in trainable_parameters(model))

    def fail_inside():
        with displaced(model, torch.full((count,), 1e-3, dtype=torch.float64)):
            assert not torch.equal(model.first.weight, before["first.weight"])
            assert torch.equal(model.first.weight, model.second.weight)
            assert torch.equal(model.frozen.weight, before["frozen.weight"])
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail_inside()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_as_found_restores_after_an_error():
    model = nn.Dropout().train()
    with pytest.raises(RuntimeError), as_found(model):
        raise RuntimeError
    assert model.training


class Detached(nn.Linear):
    def forward(self, x):
        return super().forward(x).detach()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": nn.Linear(2, 3).requires_grad_(False)}, "model: expected at least one parameter with requires_grad"),
        ({"model": nn.Identity()}, "model: expected at least one parameter"),
        ({"model": Detached(2, 3)}, "model: expected logits that depend on its parameters"),
        (
            {"model": TwoInputs(), "inputs": (torch.zeros(4, 2), torch.zeros(4, 5))},
            r"shape \(4, K\), got dict; pass fo",
        ),
        ({"model": nn.LSTM(2, 3)}, r"model: expected a tensor of logits of shape \(4, K\), got tuple"),
        ({"inputs": torch.zeros(4, 6, 2)}, r"shape \(4, K\), got \(4, 6, 3\)"),
        ({"forward": lambda model, inputs: model(inputs)[:2]}, r"shape \(4, K\), got \(2, 3\)"),
        ({"cotangents": torch.zeros(1, 3, 3)}, r"cotangents: expected shape \(M, 4, K\), got \(1, 3, 3\)"),
        ({"cotangents": torch.zeros(4, 3)}, r"cotangents: expected shape \(M, N, K\), got \(4, 3\)"),
        ({"cotangents": torch.zeros(1, 4, 5)}, "cotangents: expected 3 classes, got 5"),
        ({"microbatch": 0}, "microbatch: expected a positive number of rows, got 0"),
        ({"inputs": (torch.zeros(4, 2), torch.zeros(5, 2))}, r"one common, positive number of rows, got \[4, 5\]"),
        ({"inputs": torch.zeros(0, 2)}, r"one common, positive number of rows, got \[0\]"),
        ({"inputs": {"flag": True}}, r"one common, positive number of rows, got \[\]"),
    ],
)
def test_bad_input_is_named(change, message):
    def multiply(model, inputs, cotangents, **settings):
        BatchJacobian(model, inputs, **settings).products(cotangents)

    given = {"model": nn.Linear(2, 3), "inputs": torch.zeros(4, 2), "cotangents": torch.zeros(1, 4, 3)} | change
    with pytest.raises(ValueError, match=message):
        multiply(given.pop("model"), given.pop("inputs"), given.pop("cotangents"), **given)
