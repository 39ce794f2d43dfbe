"""Truncated teachers: what is known of them, their completion, and the direction that it leads to (EXTENSIONS 2)."""

import numpy as np
import pytest
import torch

import oracles
from strategies import make_pairs, truncate
from tpkd.geometry import TopK, alignment_bound, complete_top_k, directions, in_safe_cone, retention_bound
from tpkd.geometry.top_k import check_top_k


def completed_by_loops(student, top_k, labels, row):
    kept = {
        int(j): float(np.exp(value))
        for j, value in zip(top_k.indices[row].tolist(), top_k.log_probs[row].tolist(), strict=True)
        if j >= 0
    }
    label = int(labels[row])
    known = None if top_k.label_log_probs is None else float(top_k.label_log_probs[row].exp())
    rest = None if top_k.rest_log_probs is None else float(top_k.rest_log_probs[row].exp())
    return oracles.complete(student[row].numpy(), kept, label, known if known is not None else kept.get(label), rest)


@pytest.mark.parametrize("with_rest", [True, False])
@pytest.mark.parametrize("with_label", [True, False])
@pytest.mark.parametrize(("num_classes", "k"), [(4, 1), (10, 3), (50, 5), (10, 10)])
def test_completion_by_loops(num_classes, k, with_label, with_rest):
    student, teacher, labels = make_pairs("random", 60, num_classes, seed=2)
    top_k = truncate(teacher, labels, k, with_label=with_label, with_rest=with_rest)
    found = complete_top_k(
        student,
        top_k.log_probs,
        top_k.indices,
        labels,
        label_log_probs=top_k.label_log_probs,
        rest_log_probs=top_k.rest_log_probs,
    ).exp()
    for row in range(60):
        expected = completed_by_loops(student, top_k, labels, row)
        np.testing.assert_allclose(found[row], expected, rtol=0, atol=1e-12)
    assert found.sum(-1).tolist() == pytest.approx([1.0] * 60)


def merged_loss(z, teacher, label, kept, label_known):
    """KL of the conditional distributions on S and the merged rest, or on S alone, straight from the definition."""
    t = teacher.softmax(-1)
    others = [j for j in range(len(z)) if j != label]
    S, R = [j for j in others if j in kept], [j for j in others if j not in kept]
    if label_known:
        r, q = z[others].softmax(-1), t[others] / t[others].sum()
        at = {j: i for i, j in enumerate(others)}
        loss = sum(q[at[j]] * (q[at[j]] / r[at[j]]).log() for j in S)
        if R:
            q_rest, r_rest = sum(q[at[j]] for j in R), sum(r[at[j]] for j in R)
            loss = loss + q_rest * (q_rest / r_rest).log()
        return loss
    r, q = z[S].softmax(-1), t[S] / t[S].sum()
    return (q * (q / r).log()).sum()


@pytest.mark.parametrize("with_label", [True, False])
@pytest.mark.parametrize(("num_classes", "k"), [(4, 2), (10, 3), (30, 5)])
def test_the_direction_is_the_gradient_of_the_merged_loss(num_classes, k, with_label):
    student, teacher, labels = make_pairs("random", 40, num_classes, seed=3)
    student = student.clamp(-10, 10).requires_grad_()
    top_k = truncate(teacher, labels, k, with_label=with_label)
    step = directions(student.detach(), top_k, labels)
    for row in range(40):
        kept, label = top_k.indices[row].tolist(), int(labels[row])
        known = with_label or label in kept
        loss = merged_loss(student[row], teacher[row], label, kept, known)
        (gradient,) = torch.autograd.grad(loss, student)
        torch.testing.assert_close(step.conditional[row], gradient[row], rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("with_label", [True, False])
@pytest.mark.parametrize(("num_classes", "k"), [(10, 1), (10, 4), (100, 5)])
def test_order_retention_and_alignment_hold_for_all_classes(num_classes, k, with_label, temperature):
    """Margins against every class, kept or not; gamma_K and c_K of all K classes."""
    student, teacher, labels = make_pairs("random", 200, num_classes, seed=4)
    top_k = truncate(teacher, labels, k, with_label=with_label)
    step = directions(student, top_k, labels, temperature=temperature)
    u, d, w = step.conditional, step.safe, step.pure_conditional
    assert in_safe_cone(d, labels).all()
    assert u.sum(-1).abs().max() < 1e-12
    squares = {name: (x * x).sum(-1) for name, x in (("u", u), ("d", d), ("w", w))}
    assert (squares["d"] >= retention_bound(num_classes) * squares["u"] - 1e-12).all()
    bound = alignment_bound(num_classes) * (squares["u"] * squares["w"]).sqrt()
    assert ((u * w).sum(-1) >= bound - 1e-12).all()
    # One kept class alone has no proportions: then only rows whose label was kept with it ask for something.
    asks = (squares["u"] > 1e-6).double().mean()
    assert asks > 0.3 or (k == 1 and not with_label)


def test_all_classes_kept_is_the_whole_teacher():
    student, teacher, labels = make_pairs("random", 50, 10, seed=5)
    for top_k in (
        truncate(teacher, labels, 10),
        truncate(teacher, labels, 9),
        truncate(teacher, labels, 10, with_rest=False),
    ):
        whole, cut = directions(student, teacher, labels), directions(student, top_k, labels)
        torch.testing.assert_close(cut.update, whole.update, rtol=0, atol=1e-12)


SILENT = {
    "certain of the label": TopK(torch.tensor([[0.0]]), torch.tensor([[0]])),
    "nothing kept": TopK(torch.tensor([[0.0]]), torch.tensor([[-1]])),
    "only the label kept": TopK(torch.tensor([[-0.5]]), torch.tensor([[0]])),
    "zero kept beside a certain label": TopK(torch.tensor([[-torch.inf]]), torch.tensor([[1]]), torch.tensor([0.0])),
    "zeros kept, label not known": TopK(torch.tensor([[-torch.inf, -torch.inf]]), torch.tensor([[1, 2]])),
    "one kept, label not known": TopK(torch.tensor([[-0.5]]), torch.tensor([[1]])),
}


@pytest.mark.parametrize("case", SILENT)
def test_a_teacher_that_says_nothing_of_incorrect_classes_asks_for_nothing(case):
    student = torch.randn(1, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    step = directions(student, SILENT[case], torch.tensor([0]), temperature=2.0)
    assert (step.conditional == 0).all()
    assert torch.equal(step.update, step.label)
    assert step.label.isfinite().all()


def test_a_stored_label_wins_and_nan_stands_for_none():
    log_probs, indices = torch.tensor([[0.5, 0.3]]).log(), torch.tensor([[0, 1]])
    labels, student = torch.tensor([0]), torch.zeros(1, 4)
    given = (student, log_probs, indices, labels)
    assert complete_top_k(*given, label_log_probs=torch.tensor([0.4]).log()).exp()[0, 0].item() == pytest.approx(0.4)
    assert complete_top_k(*given, label_log_probs=torch.tensor([torch.nan])).exp()[0, 0].item() == pytest.approx(0.5)


def test_rows_are_chosen_and_flattened():
    top_k = TopK(torch.zeros(2, 3, 4), torch.arange(4).expand(2, 3, 4), torch.zeros(2, 3), torch.zeros(2, 3))
    assert (top_k.shape, top_k.k, len(top_k)) == (torch.Size([2, 3]), 4, 2)
    assert top_k.rows().shape == (6,)
    assert top_k[0].label_log_probs.shape == (3,)
    assert top_k[torch.ones(2, 3, dtype=torch.bool)].rest_log_probs.shape == (6,)
    assert TopK(torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.int16)).map(torch.Tensor.clone).rest_log_probs is None


def top_k_of(log_probs=(-1.0, -2.0), indices=(0, 1), **others):
    return TopK(torch.tensor([log_probs]), torch.tensor([indices]), **{k: torch.tensor([v]) for k, v in others.items()})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"indices": (0, 5)}, "indices: expected classes from 0 to 4, or -1 for an empty place, got 5 in row 0"),
        ({"indices": (0, -2)}, "got -2 in row 0"),
        ({"indices": (3, 3)}, "indices: expected every class once, got class 3 twice in row 0"),
        ({"log_probs": (-1.0, 0.5)}, "log_probs: expected log-probabilities, which are at most 0, got 0.5 in row 0"),
        ({"log_probs": (-1.0, torch.nan)}, "log_probs: .* got nan in row 0"),
        ({"label_log_probs": 1.0}, "label_log_probs: .* got 1 in row 0"),
        ({"rest_log_probs": torch.nan}, "rest_log_probs: .* got nan in row 0"),
    ],
)
def test_what_does_not_fit_is_refused_where_data_enter(given, message):
    with pytest.raises(ValueError, match=f"^teacher: {message}" if "indices" in message else message):
        check_top_k(top_k_of(**given), 5)


def test_empty_places_and_unknown_labels_fit():
    check_top_k(top_k_of(indices=(-1, -1), log_probs=(torch.nan, torch.nan), label_log_probs=torch.nan), 5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TopK(torch.zeros(2, 3), torch.zeros(2, 3)), "indices: expected integer classes, got torch.float32"),
        (lambda: TopK(torch.zeros(2, 3), [[0]]), "indices: expected integer classes, got list"),
        (
            lambda: TopK(torch.zeros(2, 3), torch.zeros(2, 2).long()),
            r"indices: expected the shape of log_probs \(2, 3\)",
        ),
        (
            lambda: TopK(torch.zeros(2, 3), torch.zeros(2, 3).long(), torch.zeros(3)),
            r"label_log_probs: expected shape \(2,\), got \(3,\)",
        ),
        (
            lambda: TopK(torch.zeros(2, 3), torch.zeros(2, 3).long(), None, torch.zeros(2).long()),
            "rest_log_probs: expected floating-point log-probabilities, got torch.int64",
        ),
    ],
)
def test_shapes_and_types_are_refused_at_construction(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_soft_labels_and_other_positions_are_refused():
    top_k = top_k_of()
    with pytest.raises(ValueError, match="labels: expected integer class indices with a truncated teacher"):
        directions(torch.zeros(1, 5), top_k, torch.tensor([[0.5, 0.5, 0.0, 0.0, 0.0]]))
    with pytest.raises(ValueError, match=r"top_log_probs: expected the positions of student_logits \(2,\), got \(1,\)"):
        directions(torch.zeros(2, 5), top_k, torch.tensor([0, 1]))
