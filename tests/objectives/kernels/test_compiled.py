"""Losses in a compiled graph."""

import shutil

import pytest
import torch

from strategies import make_pairs
from tpkd.objectives import create, tpkd_loss

NAMES = ("tpkd", "tpkd-no-ce", "safe-full-kl", "tpkd-no-projection", "compensation-only")


def leaf(tensor):
    return tensor.clone().requires_grad_()


@pytest.mark.parametrize(("name", "shape"), [*((name, (6, 5)) for name in NAMES), ("tpkd", (2, 5, 3))])
def test_compiled_equals_eager(name, shape):
    """One graph, whatever the shape; the tracing backend runs the captured graph without a code generator."""
    generator = torch.Generator().manual_seed(22)
    z, zt = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    y = torch.randint(5, (shape[0], *shape[2:]), generator=generator)
    y.view(-1)[1] = -100
    torch.compiler.reset()
    objective = create(name)

    def loss_of(student):
        return objective(student, zt, y)

    compiled = torch.compile(loss_of, fullgraph=True, backend="aot_eager")
    results = []
    for function in (loss_of, compiled):
        student = leaf(z)
        loss = function(student)
        loss.backward()
        results.append((loss.detach(), student.grad))
    for eager, traced in zip(*results, strict=True):
        torch.testing.assert_close(traced, eager, atol=1e-14, rtol=0)


def test_compiled_with_generated_code_equals_eager():
    """The default backend writes C++; a machine without a compiler still traces the graph."""
    backend = "inductor" if any(map(shutil.which, ("g++", "clang++", "c++"))) else "aot_eager"
    z, zt, y = make_pairs("random", 16, 7, seed=23, dtype=torch.float32)
    y[4] = -100
    torch.compiler.reset()
    results = []
    for function in (tpkd_loss, torch.compile(tpkd_loss, fullgraph=True, backend=backend)):
        student = leaf(z)
        loss = function(student, zt, y)
        loss.backward()
        results.append((loss.detach(), student.grad))
    for eager, generated in zip(*results, strict=True):
        torch.testing.assert_close(generated, eager, atol=1e-6, rtol=1e-6)  # float32, operations fused and reordered
