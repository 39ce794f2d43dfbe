import dataclasses
import json
import math

import numpy as np
import pytest
import torch

import oracles
from strategies import KINDS, all_kinds, make_pairs
from tpkd.geometry import conditional_loss, directions, imitation_loss, label_loss, retention_bound
from tpkd.theory import (
    Diagnosis,
    diagnose,
    is_blocked,
    joint_alignment,
    min_confidence,
    retention,
    transfer_cost,
)

CLASSES = [3, 10, 100]
FIELDS = (
    "blocked",
    "confidence",
    "teacher_confidence",
    "label_loss",
    "imitation_loss",
    "conditional_loss",
    "transfer_cost",
    "min_confidence",
    "compensation",
    "retention",
    "update_cosine",
)


def by_loops(student, teacher, label):
    """Every field of one example in plain NumPy."""
    log_r, log_q = oracles.conditional(student, label), oracles.conditional(teacher, label)
    log_p, log_t = oracles.log_softmax(student), oracles.log_softmax(teacher)
    truth = oracles.directions(student, teacher, label, projection=oracles.project_by_bisection)
    u, d, h, v = truth["conditional"], truth["safe"], truth["label"], truth["update"]
    g = 4 * h + u
    cost = max(0.0, (log_q - log_r).max())
    log_odds = student[label] - oracles.logsumexp(oracles.others(student, label)) + cost
    return {
        "blocked": float(all(log_p[j] <= log_t[j] for j in range(len(student)) if j != label)),
        "confidence": np.exp(log_p[label]),
        "teacher_confidence": np.exp(log_t[label]),
        "label_loss": oracles.label_loss(student, label),
        "imitation_loss": oracles.imitation_loss(student, teacher),
        "conditional_loss": oracles.conditional_loss(student, teacher, label),
        "transfer_cost": cost,
        "min_confidence": 1 / (1 + math.exp(-log_odds)) if log_odds > -700 else 0.0,
        "compensation": truth["compensation"],
        "retention": (u @ d) / (u @ u),
        "update_cosine": (g @ v) / math.sqrt((g @ g) * (v @ v)),
    }


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("kind", ["random", "blocked", "certain", "certain-both", "wrong", "tiny"])
def test_every_field_agrees_with_plain_loops(num_classes, kind):
    """To 1e-6 absolute and relative, saturated students included."""
    student, teacher, labels = make_pairs(kind, 60, num_classes, seed=0)
    state = diagnose(student, teacher, labels)
    for i, y in enumerate(labels.tolist()):
        for field, expected in by_loops(student[i].numpy(), teacher[i].numpy(), y).items():
            actual = float(getattr(state, field)[i])
            assert actual == pytest.approx(expected, rel=1e-6, abs=1e-6), field


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_field_agrees_with_the_function_of_its_statement(num_classes, kind):
    student, teacher, labels = make_pairs(kind, 200, num_classes, seed=1)
    state = diagnose(student, teacher, labels)
    assert torch.equal(state.blocked, is_blocked(student, teacher, labels))
    assert torch.equal(state.transfer_cost, transfer_cost(student, teacher, labels))
    assert torch.equal(state.min_confidence, min_confidence(student, teacher, labels))
    assert torch.equal(state.compensation, directions(student, teacher, labels).compensation)
    close = {"rtol": 1e-12, "atol": 1e-14}
    torch.testing.assert_close(state.label_loss, label_loss(student, labels), **close)
    torch.testing.assert_close(state.imitation_loss, imitation_loss(student, teacher, labels), **close)
    torch.testing.assert_close(state.conditional_loss, conditional_loss(student, teacher, labels), **close)
    torch.testing.assert_close(state.retention, retention(student, teacher, labels).descent_share, **close)
    torch.testing.assert_close(
        state.update_cosine, joint_alignment(student, teacher, labels).cosine, rtol=1e-12, atol=1e-12
    )


def test_fields_are_the_contract():
    assert Diagnosis.names() == FIELDS
    assert {field.name for field in dataclasses.fields(Diagnosis)} == {*FIELDS, "num_classes", "bounds", "label_known"}
    state = diagnose(*all_kinds(10, 3, seed=2))
    assert state.bounds == dict.fromkeys(FIELDS, "exact")
    assert state.label_known is None
    assert state.num_without_label == 0
    assert set(state.summary()) == {"examples", "num_classes", "blocked_share", "blocked", "all"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.blocked = None


@pytest.mark.parametrize("num_classes", CLASSES)
def test_values_are_finite_and_in_range_everywhere(num_classes):
    state = diagnose(*all_kinds(1000, num_classes, seed=3))
    for name in FIELDS[1:]:
        value = getattr(state, name)
        assert value.isfinite().all(), name
        assert (value >= 0).all(), name
        assert not (value == 0).logical_and(value.signbit()).any(), f"{name} holds -0.0"
    for name in ("confidence", "teacher_confidence", "min_confidence", "retention", "update_cosine"):
        assert (getattr(state, name) <= 1 + 1e-12).all(), name
    assert (state.compensation <= 0.5).all()


def test_retention_and_cosine_where_nothing_is_left():
    """u = 0 gives retention 1; where h vanishes as well the cosine is 1."""
    student = torch.tensor([[2.0, 1.0, 0.0], [5000.0, 1.0, 0.0]], dtype=torch.float64)
    state = diagnose(student, student, torch.tensor([0, 0]))
    assert state.retention.tolist() == [1.0, 1.0]
    assert state.update_cosine.tolist() == pytest.approx([1.0, 1.0], abs=1e-15)


def test_tiny_signals_do_not_underflow():
    """Both put all but 1e-170 on one incorrect class; squares of the differences are below the smallest number."""
    student = torch.tensor([[5.0, 0.0, 1.0, 400.0]], dtype=torch.float64)
    teacher = torch.tensor([[5.0, 1.0, 0.0, 400.0]], dtype=torch.float64)
    state = diagnose(student, teacher, torch.tensor([0]))
    assert retention_bound(4) - 1e-12 <= state.retention.item() <= 1
    assert state.update_cosine.item() == pytest.approx(1, abs=1e-12)


def test_dtypes():
    student, teacher, labels = make_pairs("random", 20, 5, seed=4)
    assert diagnose(student, teacher, labels).retention.dtype == torch.float64
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        state = diagnose(student.to(dtype), teacher.to(dtype), labels)
        assert state.retention.dtype == torch.float32
        assert state.blocked.dtype == torch.bool
    exact = diagnose(student.float().double(), teacher.float().double(), labels)
    single = diagnose(student.float(), teacher.float(), labels)
    torch.testing.assert_close(single.transfer_cost, exact.transfer_cost.float(), rtol=1e-5, atol=1e-5)


def test_batch_shapes():
    student, teacher, labels = make_pairs("random", 12, 5, seed=5)
    flat = diagnose(student, teacher, labels)
    grid = diagnose(student.view(3, 4, 5), teacher.view(3, 4, 5), labels.view(3, 4))
    single = diagnose(student[0], teacher[0], labels[0])
    for name in FIELDS:
        assert torch.equal(getattr(grid, name).reshape(-1), getattr(flat, name))
        assert getattr(single, name).shape == ()


def test_summary_is_plain_numbers():
    student, teacher, labels = make_pairs("random", 50, 6, seed=6)
    blocked = make_pairs("blocked", 50, 6, seed=6)
    pairs = [torch.cat(parts) for parts in zip((student, teacher, labels), blocked, strict=True)]
    state = diagnose(*pairs)
    summary = state.summary()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["examples"] == 100
    assert summary["num_classes"] == 6
    assert summary["blocked_share"] == pytest.approx(state.blocked.double().mean().item())
    assert 0.5 <= summary["blocked_share"] < 1
    assert set(summary["all"]) == set(FIELDS)
    for name in FIELDS:
        assert summary["all"][name] == pytest.approx(getattr(state, name).double().mean().item())
    for name in ("conditional_loss", "transfer_cost"):
        assert summary["blocked"][name] == pytest.approx(getattr(state, name)[state.blocked].mean().item())


def test_summary_of_an_empty_blocked_set_is_none_and_never_nan():
    student, teacher = torch.tensor([[0.0, 5.0, 0.0]]), torch.tensor([[5.0, 0.0, 0.0]])
    summary = diagnose(student, teacher, torch.tensor([0])).summary()
    assert summary["blocked_share"] == 0
    assert summary["blocked"] == {"conditional_loss": None, "transfer_cost": None}
    nothing = diagnose(torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).summary()
    assert nothing["examples"] == 0
    assert nothing["blocked_share"] is None
    assert set(nothing["all"].values()) == {None}


def test_to_dict_is_plain_lists():
    state = diagnose(*make_pairs("random", 4, 3, seed=7))
    plain = state.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert set(plain) == {*FIELDS, "num_classes"}
    assert plain["transfer_cost"] == state.transfer_cost.tolist()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_logits_are_refused_by_argument_and_row(value):
    good, labels = torch.zeros(5, 3), torch.zeros(5, dtype=torch.long)
    bad = good.clone()
    bad[3, 1] = value
    with pytest.raises(ValueError, match=rf"student_logits: expected finite logits, got {value} at class 1 of row 3"):
        diagnose(bad, good, labels)
    with pytest.raises(ValueError, match=r"teacher_logits: expected finite logits, got .* at class 1 of row 3"):
        diagnose(good, bad, labels)
    with pytest.raises(ValueError, match=r"student_logits: .* of position \(0, 3\)"):
        diagnose(bad.unsqueeze(0), good.unsqueeze(0), labels.unsqueeze(0))


def test_bad_input_is_refused():
    labels = torch.zeros(2, dtype=torch.long)
    with pytest.raises(ValueError, match="student_logits: expected at least 3 classes, got 2"):
        diagnose(torch.zeros(2, 2), torch.zeros(2, 2), labels)
    with pytest.raises(ValueError, match="teacher_logits: expected the shape of student_logits"):
        diagnose(torch.zeros(2, 3), torch.zeros(2, 4), labels)
    with pytest.raises(ValueError, match="labels: expected class indices from 0 to 2, got 3"):
        diagnose(torch.zeros(2, 3), torch.zeros(2, 3), torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="expected floating-point logits"):
        diagnose(torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 3), labels)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["student_logits", "teacher_logits"])
def test_probabilities_are_refused_by_argument(name, dtype):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 7, 5, generator=generator, dtype=torch.float64)
    arguments = {"student_logits": logits, "teacher_logits": 2 * logits, "labels": torch.zeros(2, 7, dtype=torch.long)}
    arguments[name] = arguments[name].softmax(-1)
    for key in ("student_logits", "teacher_logits"):
        arguments[key] = arguments[key].to(dtype)
    with pytest.raises(ValueError, match=f"^{name}: expected logits, got probabilities .*; pass their logarithms$"):
        diagnose(**arguments)


def test_probabilities_with_zeros_are_refused():
    teacher = torch.tensor([[0.0, 0.25, 0.75], [1.0, 0.0, 0.0]])
    with pytest.raises(ValueError, match="teacher_logits: expected logits, got probabilities"):
        diagnose(torch.randn(2, 3), teacher, torch.tensor([0, 1]))


def test_logits_that_only_look_a_little_like_probabilities_are_diagnosed():
    labels = torch.tensor([0, 1])
    student = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.5, 0.5]])  # one row of two sums to 1
    assert diagnose(student, student.log(), labels).blocked.shape == (2,)
    assert diagnose(student[:0], student[:0], labels[:0]).blocked.shape == (0,)
