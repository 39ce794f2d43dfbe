"""Losses where torch runs without values, writes down a graph, or watches every operation: no value is looked at."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from strategies import make_pairs
from tpkd.geometry.inputs import can_read_values
from tpkd.objectives import dkd_loss, kd_loss, linear_tpkd_loss, tpkd_loss


@pytest.mark.parametrize("loss", [tpkd_loss, kd_loss, dkd_loss])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_tensors_without_values(loss, reduction):
    with FakeTensorMode():
        student, labels = torch.randn(4, 10, requires_grad=True), torch.zeros(4, dtype=torch.long)
        losses = loss(student, torch.randn(4, 10), labels, reduction=reduction)
        losses.sum().backward()
    assert losses.shape == (() if reduction == "mean" else (4,))
    assert student.grad is not None
    assert student.grad.shape == (4, 10)


def test_a_linear_head_without_values():
    with FakeTensorMode():
        features, head = torch.randn(4, 8, requires_grad=True), torch.randn(10, 8, requires_grad=True)
        linear_tpkd_loss(features, head, torch.randn(4, 10), torch.zeros(4, dtype=torch.long)).backward()
    assert head.grad is not None
    assert head.grad.shape == (10, 8)


@pytest.mark.parametrize("loss", [tpkd_loss, kd_loss, dkd_loss])
@pytest.mark.parametrize("tracing_mode", ["real", "fake", "symbolic"])
def test_a_graph_that_is_written_down_is_the_loss(loss, tracing_mode):
    pairs, others = (make_pairs("random", 6, 10, seed=seed, dtype=torch.float32) for seed in (0, 1))
    traced = make_fx(lambda *given: loss(*given), tracing_mode=tracing_mode)(*pairs)
    torch.testing.assert_close(traced(*others), loss(*others), rtol=2e-6, atol=0)


def test_a_mode_that_watches_sees_the_same_loss():
    student, teacher, labels = make_pairs("random", 6, 10, seed=2, dtype=torch.float32)
    with FlopCounterMode(display=False):
        assert not can_read_values(labels)
        watched = tpkd_loss(student, teacher, labels)
    torch.testing.assert_close(watched, tpkd_loss(student, teacher, labels), rtol=1e-6, atol=0)
