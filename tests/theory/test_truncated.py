"""EXTENSIONS 2: what a diagnosis of a truncated teacher says about the whole one, and what it does not."""

import itertools
import json
import math

import pytest
import torch

import oracles
from strategies import all_kinds, make_pairs, truncate
from theory.checks import inner
from tpkd.geometry import TopK, complete_top_k, directions, label_loss, retention_bound, split
from tpkd.theory import diagnose, observe, retention, transfer_cost
from tpkd.theory.diagnosis import diagnose_pair
from tpkd.theory.pair import split_pair
from tpkd.theory.truncated import BOUNDS, split_truncated

LOWER = [name for name, kind in BOUNDS.items() if kind == "lower"]
EXACT = [name for name, kind in BOUNDS.items() if kind == "exact"]


def clamped_pairs(count, num_classes, seed):
    student, teacher, labels = all_kinds(count, num_classes, seed=seed)
    return student.clamp(-20, 20), teacher.clamp(-20, 20), labels


def check_bounds(cut, whole):
    """No bound crossed; exact fields equal. Tolerances: a few hundred roundings of losses up to 40 nats."""
    assert not (whole.blocked & ~cut.blocked).any()
    for name in LOWER:
        found, truth = getattr(cut, name), getattr(whole, name)
        assert (found <= truth + 1e-12 * (1 + truth)).all(), name
    for name in EXACT:
        torch.testing.assert_close(getattr(cut, name), getattr(whole, name), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("num_classes", "ks"), [(4, range(1, 4)), (10, range(1, 10)), (100, (1, 5, 20, 99))])
def test_no_bound_is_crossed(num_classes, ks):
    student, teacher, labels = clamped_pairs(300, num_classes, seed=1)
    whole = diagnose(student, teacher, labels)
    costs = []
    for k in ks:
        cut = diagnose(student, truncate(teacher, labels, k), labels)
        assert cut.bounds == BOUNDS
        assert cut.num_without_label == 0
        check_bounds(cut, whole)
        costs.append(cut.transfer_cost.mean())
    assert all(low <= high + 1e-12 for low, high in itertools.pairwise(costs))  # more kept, more known
    assert costs[0] < whole.transfer_cost.mean() - 0.1  # and the bounds are not the values


def test_without_a_stored_rest_bounds_hold_while_one_minus_the_others_has_digits():
    """Of a certain teacher nothing is left of them: its relations are then noise, and so are the bounds."""
    student, teacher, labels = make_pairs("random", 300, 10, seed=1)
    student, teacher = student.clamp(-3, 3), teacher.clamp(-3, 3)
    whole = diagnose(student, teacher, labels)
    for k in (1, 3, 8):
        check_bounds(diagnose(student, truncate(teacher, labels, k, with_rest=False), labels), whole)
    certain = teacher.scatter(-1, labels.unsqueeze(-1), 38.0)
    whole = diagnose(student, certain, labels)
    check_bounds(diagnose(student, truncate(certain, labels, 3), labels), whole)
    cut = diagnose(student, truncate(certain, labels, 3, with_rest=False), labels)
    assert (cut.transfer_cost > whole.transfer_cost + 1e-3).any()


def uniform_tail(teacher, labels, k):
    """What it is tempting to do instead: the rest in equal shares."""
    log_t = teacher.log_softmax(-1)
    given = torch.zeros_like(log_t, dtype=torch.bool).scatter(-1, log_t.topk(k).indices, True)
    given = given.scatter(-1, labels.unsqueeze(-1), True)
    rest = log_t.masked_fill(given, -torch.inf).logsumexp(-1, keepdim=True)
    return torch.where(given, log_t, rest - (~given).sum(-1, keepdim=True).log())


def test_a_uniform_tail_crosses_the_bounds():
    student, teacher, labels = clamped_pairs(400, 100, seed=2)
    whole = diagnose(student, teacher, labels)
    guessed = diagnose(student, uniform_tail(teacher, labels, 5), labels)
    assert (guessed.transfer_cost > whole.transfer_cost + 0.1).double().mean() > 0.2
    with pytest.raises(AssertionError):
        check_bounds(guessed, whole)
    surer = teacher.scatter_add(-1, labels.unsqueeze(-1), torch.ones(len(labels), 1, dtype=torch.float64))
    assert diagnose(surer, teacher, labels).blocked.all()
    assert diagnose(surer, truncate(teacher, labels, 5), labels).blocked.all()
    assert diagnose(surer, uniform_tail(teacher, labels, 5), labels).blocked.double().mean() < 0.7


@pytest.fixture(scope="module")
def digits():
    """Logits of two classifiers of handwritten digits: a student of few examples, a teacher of many."""
    datasets = pytest.importorskip("sklearn.datasets")
    linear_model = pytest.importorskip("sklearn.linear_model")
    features, labels = datasets.load_digits(return_X_y=True)
    features = features / 16
    teacher = linear_model.LogisticRegression(C=1.0, max_iter=200).fit(features[:900], labels[:900])
    student = linear_model.LogisticRegression(C=10.0, max_iter=200).fit(features[:300], labels[:300])
    logits = [torch.from_numpy(model.decision_function(features[200:1200])) for model in (student, teacher)]
    return *logits, torch.from_numpy(labels[200:1200]).long()


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_no_bound_is_crossed_on_real_logits(digits, k):
    student, teacher, labels = digits
    whole = diagnose(student, teacher, labels)
    check_bounds(diagnose(student, truncate(teacher, labels, k), labels), whole)
    assert 0.05 < whole.blocked.double().mean() < 0.95


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_a_teacher_that_kept_all_classes_is_the_whole_one(temperature):
    student, teacher, labels = make_pairs("random", 200, 10, seed=3)
    student, teacher = student.clamp(-20, 20), teacher.clamp(-20, 20)
    whole = diagnose(student, teacher, labels, temperature=temperature)
    for k, with_rest in ((9, True), (10, True), (10, False)):
        top_k = truncate(teacher, labels, k, with_rest=with_rest)
        cut = diagnose(student, top_k, labels, temperature=temperature)
        assert torch.equal(cut.blocked, whole.blocked)
        for name in whole.names()[1:]:
            torch.testing.assert_close(getattr(cut, name), getattr(whole, name), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_it_is_the_diagnosis_of_the_completed_teacher(temperature):
    student, teacher, labels = make_pairs("random", 100, 12, seed=4)
    student, teacher = student.clamp(-20, 20), teacher.clamp(-20, 20)
    top_k = truncate(teacher, labels, 4)
    completed = complete_top_k(
        student,
        top_k.log_probs,
        top_k.indices,
        labels,
        label_log_probs=top_k.label_log_probs,
        rest_log_probs=top_k.rest_log_probs,
    )
    cut = diagnose(student, top_k, labels, beta=0.7, temperature=temperature)
    expected = diagnose_pair(split_pair(student, completed, labels), beta=0.7, temperature=temperature)
    for name in expected.names()[1:]:
        torch.testing.assert_close(getattr(cut, name), getattr(expected, name), rtol=1e-8, atol=1e-10)
    kept = retention(student, top_k, labels, temperature=temperature).descent_share
    torch.testing.assert_close(cut.retention, kept, rtol=1e-8, atol=1e-8)
    step = directions(student, top_k, labels, temperature=temperature)
    torch.testing.assert_close(cut.compensation, step.compensation, rtol=1e-8, atol=1e-12)


def kept_alone(student, teacher, labels, top_k):
    """KL(q_S || r_S), the price and the necessary test on the kept classes of one example each, in loops."""
    p, t = student.softmax(-1), teacher.softmax(-1)
    for row, label in enumerate(labels.tolist()):
        S = [j for j in top_k.indices[row].tolist() if j != label]
        r, q = p[row, S] / p[row, S].sum(), t[row, S] / t[row, S].sum()
        ratio = (q / r).log()
        yield (q * ratio).sum().item(), max(0.0, ratio.max().item()), bool((p[row, S] <= t[row, S]).all())


def test_rows_without_the_label_speak_of_the_kept_classes_alone():
    student, teacher, labels = make_pairs("random", 300, 10, seed=5)
    student, teacher = student.clamp(-10, 10), teacher.clamp(-10, 10)
    top_k = truncate(teacher, labels, 4, with_label=False)
    cut, whole = diagnose(student, top_k, labels), diagnose(student, teacher, labels)
    kept = (top_k.indices == labels.unsqueeze(-1)).any(-1)
    assert torch.equal(cut.label_known, kept)
    assert cut.num_without_label == int((~kept).sum()) > 50
    assert torch.equal(cut.teacher_confidence.isnan(), ~kept)
    for row, (loss, cost, may_be_blocked) in enumerate(kept_alone(student, teacher, labels, top_k)):
        if not kept[row]:
            assert cut.conditional_loss[row].item() == pytest.approx(loss, abs=1e-10)
            assert cut.transfer_cost[row].item() == pytest.approx(cost, abs=1e-10)
            assert cut.blocked[row].item() == may_be_blocked
    # Loss and price of the kept classes are no bounds: both are exceeded somewhere. Blocking and imitation still are.
    assert (cut.conditional_loss > whole.conditional_loss + 1e-3)[~kept].any()
    assert not (whole.blocked & ~cut.blocked).any()
    assert (cut.imitation_loss <= whole.imitation_loss + 1e-12).all()
    step = directions(student, top_k, labels)
    g, v = 4 * step.label + step.conditional, step.update
    cosine = inner(g, v) / (inner(g, g) * inner(v, v)).sqrt()
    torch.testing.assert_close(cut.update_cosine, cosine, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(cut.compensation, step.compensation, rtol=1e-9, atol=1e-13)
    assert (cut.retention >= retention_bound(10) - 1e-9).all()


def test_no_mean_of_a_bound_contains_rows_without_the_label():
    student, teacher, labels = make_pairs("random", 200, 10, seed=6)
    top_k = truncate(teacher, labels, 4, with_label=False)
    state = diagnose(student, top_k, labels)
    known, summary = state.label_known, state.summary()
    assert summary["examples"] == 200
    for name in (*LOWER, "blocked", "teacher_confidence"):
        assert summary["all"][name] == pytest.approx(getattr(state, name)[known].double().mean().item()), name
    for name in ("confidence", "label_loss", "compensation", "retention", "update_cosine"):
        assert summary["all"][name] == pytest.approx(getattr(state, name).mean().item()), name
    assert summary["blocked_share"] == summary["all"]["blocked"]
    assert summary["bounds"] == BOUNDS
    rest = summary["without_label"]
    assert rest["examples"] == state.num_without_label == int((~known).sum())
    for name in ("conditional_loss", "transfer_cost"):
        assert rest[name] == pytest.approx(getattr(state, name)[~known].mean().item())
        over = getattr(state, name)[known & state.blocked]
        assert summary["blocked"][name] == pytest.approx(over.mean().item())
    assert json.loads(json.dumps(summary)) == summary
    plain = state.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert [value is None for value in plain["teacher_confidence"]] == (~known).tolist()
    assert plain["label_known"] == known.tolist()


def test_a_summary_without_any_label_has_no_bounds():
    student, teacher, labels = make_pairs("random", 20, 10, seed=7)
    top_k = truncate(teacher, labels, 2, with_label=False)
    rows = (top_k.indices != labels.unsqueeze(-1)).all(-1)
    summary = diagnose(student[rows], top_k[rows], labels[rows]).summary()
    assert summary["blocked_share"] is None
    assert summary["all"]["transfer_cost"] is None
    assert summary["without_label"]["examples"] == int(rows.sum()) > 0
    seen = observe(student[rows], top_k[rows], labels[rows])
    assert (seen["blocked_share"], seen["transfer_cost"], seen["conditional_loss"]) == (1, 0, 0)


def test_monitoring_shows_the_same_means():
    student, teacher, labels = make_pairs("random", 100, 10, seed=8)
    top_k = truncate(teacher, labels, 3, with_label=False)
    summary = diagnose(student, top_k, labels).summary()["all"]
    masked = labels.clone()
    seen = observe(
        student.view(10, 10, 10),
        TopK(*(x.view(10, 10, -1) for x in (top_k.log_probs, top_k.indices)), None, top_k.rest_log_probs.view(10, 10)),
        masked.view(10, 10),
    )
    assert seen.pop("blocked_share").item() == pytest.approx(summary["blocked"], rel=1e-5)
    for name, value in seen.items():
        assert value.item() == pytest.approx(summary[name], rel=1e-5), name
    masked[::2] = -100
    half = observe(student, top_k, masked)
    assert half["label_loss"].item() == pytest.approx(label_loss(student, labels)[1::2].mean().item(), rel=1e-5)


def test_half_precision_caches_cross_no_bound_of_blocking():
    """Rounded log-probabilities leave less than nothing for the rest of a certain teacher; the flag allows for that."""
    student, teacher, labels = clamped_pairs(400, 20, seed=9)
    top_k = truncate(teacher, labels, 5, with_rest=False).map(lambda x: x.half() if x.is_floating_point() else x)
    whole = diagnose(student, teacher, labels)
    kept = split_truncated(student, top_k, labels)
    exact = split_truncated(student, truncate(teacher, labels, 5), labels)
    lost = top_k.log_probs.double().exp().sum(-1) >= 1
    assert lost.any()
    # On the kept classes themselves rounding may decide either way; only rows without such a tie are compared.
    log_p, log_t = student.log_softmax(-1), teacher.log_softmax(-1)
    clear = ((log_p - log_t).abs() > 1e-2 * (1 + log_t.abs())).all(-1)
    assert not (whole.blocked & ~kept.blocked)[clear].any()
    assert not (whole.blocked & ~exact.blocked).any()


CERTAIN = {
    "certain": TopK(torch.tensor([[0.0]]), torch.tensor([[0]])),
    "only the label": TopK(torch.tensor([[-0.5]]), torch.tensor([[0]])),
    "nothing": TopK(torch.tensor([[0.0]]), torch.tensor([[-1]])),
    "a zero beside a certain label": TopK(torch.tensor([[-torch.inf]]), torch.tensor([[1]]), torch.tensor([0.0])),
}


@pytest.mark.parametrize("case", CERTAIN)
def test_teachers_that_say_nothing_of_incorrect_classes_give_finite_numbers(case):
    student = torch.tensor([[1.0, 0.5, 0.0, -1.0]], dtype=torch.float64)
    state = diagnose(student, CERTAIN[case], torch.tensor([0]))
    assert state.conditional_loss.item() == state.transfer_cost.item() == state.compensation.item() == 0
    assert state.retention.item() == 1
    assert state.imitation_loss.isfinite().all()
    if "certain" in case:
        assert state.teacher_confidence.item() == 1
        assert state.imitation_loss.item() == pytest.approx(oracles.label_loss(student[0].numpy(), 0))


def merged_potential(z, student, top_k, labels, teacher):
    """4 L_CE + KL(q || r) merged over what was not kept, from the definition."""
    kept = (
        torch.zeros_like(z, dtype=torch.bool).scatter(-1, top_k.indices, True).scatter(-1, labels.unsqueeze(-1), False)
    )
    rest = (~kept).scatter(-1, labels.unsqueeze(-1), False)
    log_r, log_q = (split_wide(x, labels) for x in (z, teacher))
    of_kept = (log_q.exp() * (log_q - log_r)).masked_fill(~kept, 0.0).sum(-1)
    r_rest, q_rest = (x.masked_fill(~rest, -torch.inf).logsumexp(-1) for x in (log_r, log_q))
    of_rest = (q_rest.exp() * (q_rest - r_rest)).masked_fill(~rest.any(-1), 0.0)
    return 4 * label_loss(z, labels) + of_kept + of_rest


def split_wide(logits, labels):
    return logits.scatter(-1, labels.unsqueeze(-1), -torch.inf).log_softmax(-1)


@pytest.mark.parametrize("step_size", [0.01, 0.4, 0.8])
@pytest.mark.parametrize(("num_classes", "k"), [(5, 1), (10, 3), (50, 5)])
def test_the_merged_objective_has_the_descent_certificate(num_classes, k, step_size):
    """eq:descentcertificate for beta = 1/2 and T = 1: the merged conditional loss is 1/2-smooth with gradient u."""
    student, teacher, labels = make_pairs("random", 400, num_classes, seed=10)
    student, teacher = student.clamp(-8, 8), teacher.clamp(-8, 8)
    top_k = truncate(teacher, labels, k)
    step = directions(student, top_k, labels)
    g, v = 4 * step.label + step.conditional, step.update
    before, after = (merged_potential(z, student, top_k, labels, teacher) for z in (student, student - step_size * v))
    certain = step_size * retention_bound(num_classes) / 4 * inner(g, g)
    certain = certain + step_size * (1 - 5 / 4 * step_size) * inner(v, v)
    assert (before - after >= certain - 1e-11 * (1 + before)).all()
    weight_one = directions(student, top_k, labels, beta=3.0).update
    if step_size == 0.01:  # the certificate is that of one half
        after = merged_potential(student - step_size * weight_one, student, top_k, labels, teacher)
        own = step_size * (retention_bound(num_classes) / 4 * inner(g, g) + 0.98 * inner(weight_one, weight_one))
        assert (before - after < own - 1e-9).any()


def test_what_converges_is_the_merged_conditional():
    """r_S -> q_S and r_R -> q_R, while inside the rest nothing of the teacher is learned."""
    generator = torch.Generator().manual_seed(1)
    student, teacher = 0.7 * torch.randn(2, 4, 8, generator=generator, dtype=torch.float64)
    labels = torch.randint(8, (4,), generator=generator)
    top_k = truncate(teacher, labels, 3)
    z = student.clone()
    for _ in range(1500):
        z = z - 0.8 * directions(z, top_k, labels).update
    r, q = split_wide(z, labels).exp(), split_wide(teacher, labels).exp()
    kept = (
        torch.zeros_like(z, dtype=torch.bool).scatter(-1, top_k.indices, True).scatter(-1, labels.unsqueeze(-1), False)
    )
    assert (r - q)[kept].abs().max() < 1e-2
    rest = (~kept).scatter(-1, labels.unsqueeze(-1), False)
    assert (r - q).masked_fill(~rest, 0.0).sum(-1).abs().max() < 1e-2
    assert (r - q)[rest].abs().max() > 2e-2


def test_what_is_wrong_is_refused_where_data_enter():
    student, teacher, labels = make_pairs("random", 4, 6, seed=11)
    top_k = truncate(teacher, labels, 2)
    twice = TopK(top_k.log_probs, torch.zeros_like(top_k.indices))
    with pytest.raises(ValueError, match="teacher_logits: indices: expected every class once, got class 0 twice"):
        diagnose(student, twice, labels)
    positive = TopK(top_k.log_probs + 9, top_k.indices)
    with pytest.raises(ValueError, match="teacher_logits: log_probs: expected log-probabilities, which are at most 0"):
        diagnose(student, positive, labels)
    broken = student.clone()
    broken[2, 1] = math.nan
    with pytest.raises(ValueError, match="student_logits: expected finite logits, got nan at class 1 of row 2"):
        diagnose(broken, top_k, labels)
    with pytest.raises(ValueError, match="student_logits: expected logits, got probabilities"):
        diagnose(student.softmax(-1), top_k, labels)
    with pytest.raises(ValueError, match="labels: expected integer class indices with a truncated teacher"):
        diagnose(student, top_k, torch.full((4, 6), 1 / 6))
    with pytest.raises(ValueError, match=r"teacher_logits: expected a torch\.Tensor of logits, got TopK"):
        transfer_cost(student, top_k, labels)
    assert split(student, labels).log_odds.isfinite().all()
