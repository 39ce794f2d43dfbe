"""Weights of samples: every row's value and gradient times its weight, over the sum of weights."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from objectives.cases import CASES, SEED, build_networks, make_inputs
from strategies import make_pairs
from tolerances import EXACT
from tpkd.geometry.top_k import TopK
from tpkd.objectives import (
    KD,
    Objective,
    TPKDLoss,
    class_sample_weights,
    create,
    cross_entropy_loss,
    dkd_loss,
    dp_loss,
    kd_loss,
    kl_dist_loss,
    linear_top_k_tpkd_loss,
    linear_tpkd_loss,
    top_k_kd_loss,
    top_k_tpkd_loss,
    tpkd_loss,
    xe_kl_loss,
)
from tpkd.objectives.kernels import code_for
from tpkd.objectives.kernels.cpu import has_kernel

WEIGHTED = [case for case in CASES if case.objective().takes_weights]
REFUSING = [case for case in CASES if not case.objective().takes_weights]
ROWS = [case for case in WEIGHTED if case.is_of_rows]
WEIGHTS = torch.tensor([0.5, 2.0, 0.0, 1.25, 3.0, 0.75, 1.0, 0.125, 0.0, 4.0, 1.5, 0.3], dtype=torch.float64)


def soft(labels, num_classes=5):
    """Two classes per row, so that three are left for a teacher to order."""
    share = torch.linspace(0.1, 0.9, len(labels), dtype=torch.float64).unsqueeze(-1)
    hot = functional.one_hot(labels, num_classes).double()
    return share * hot + (1 - share) * hot.roll(1, -1)


def inputs_of(kind):
    inputs = make_inputs()
    return replace(inputs, labels=soft(inputs.labels)) if kind == "soft" else inputs


def step(objective, inputs, weights=None, num_items=None):
    """The sum of the losses, and its gradient by student logits and features."""
    leaves = inputs.map(lambda tensor: tensor.detach().clone().requires_grad_())
    build_networks(objective, leaves.batch())
    total = sum(objective.losses(replace(leaves.batch(num_items), sample_weights=weights)).values())
    found = torch.autograd.grad(total, (leaves.student, leaves.features), allow_unused=True)
    zeros = torch.zeros_like(leaves.student), torch.zeros_like(leaves.features)
    gradients = [zero if gradient is None else gradient for gradient, zero in zip(found, zeros, strict=True)]
    return total.detach(), *gradients


def assert_close(found, expected, tolerance=1e-12):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("case", WEIGHTED, ids=str)
def test_the_mean_is_the_weighted_sum_of_single_rows_over_the_sum_of_weights(case, kind):
    objective, inputs = case.objective(), inputs_of(kind)
    if kind == "soft" and not objective.takes_soft_labels:
        pytest.skip("takes no soft labels")
    rows = [step(objective, inputs.rows(slice(row, row + 1))) for row in range(12)]
    share = WEIGHTS / WEIGHTS.sum()
    value = sum(w * row[0] for w, row in zip(share, rows, strict=True))
    gradients = [torch.cat([w * row[i] for w, row in zip(share, rows, strict=True)]) for i in (1, 2)]
    assert_close(step(objective, inputs, WEIGHTS), (value, *gradients))


def test_every_separable_objective_takes_weights():
    assert {case.name for case in WEIGHTED} >= {"ce", "kd", "kl-dist", "dkd", "dp-u", "dp-s", "xe-kl", "dhkd", "tpkd"}
    assert all(case.objective().takes_weights == case.objective().separable for case in CASES)


@pytest.mark.parametrize("case", REFUSING, ids=str)
def test_an_objective_that_is_not_a_sum_refuses_weights_by_name(case):
    expected = f"sample_weights: expected None.*objective '{case.name}' is not a sum over positions"
    with pytest.raises(ValueError, match=expected):
        case.objective().losses(replace(make_inputs().batch(), sample_weights=WEIGHTS))


def test_an_objective_that_says_nothing_about_weights_does_not_ignore_them():
    class Own(Objective):
        name = "own"
        needs = frozenset()

        def compute_losses(self, batch):
            return {"loss": batch.student_logits.sum()}

    with pytest.raises(ValueError, match=r"sample_weights: .*objective 'own' does not take weights"):
        Own().losses(replace(make_inputs().batch(), sample_weights=WEIGHTS))


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("case", ROWS, ids=str)
def test_reductions_agree_with_each_other(case, kind):
    objective, inputs = case.objective(), inputs_of(kind)
    if kind == "soft" and not objective.takes_soft_labels:
        pytest.skip("takes no soft labels")

    def loss(reduction, weights=WEIGHTS):
        batch = replace(inputs.batch(), sample_weights=weights, reduction=reduction)
        return objective.losses(batch)["loss"]

    each = loss("none")
    assert_close([each], [WEIGHTS * loss("none", None)])
    assert_close([loss("sum"), loss("mean")], [each.sum(), each.sum() / WEIGHTS.sum()])


@pytest.mark.parametrize("case", WEIGHTED, ids=str)
def test_micro_batches_with_the_sum_of_weights_add_up(case):
    objective, inputs = case.objective(), make_inputs()
    inputs = replace(inputs, labels=inputs.labels.index_fill(0, torch.tensor([1, 7]), -100))
    total = WEIGHTS[inputs.labels != -100].sum()
    whole = step(objective, inputs, WEIGHTS)
    parts = [slice(0, 3), slice(3, 4), slice(4, 12)]
    found = [step(objective, inputs.rows(part), WEIGHTS[part], total) for part in parts]
    values = sum(piece[0] for piece in found)
    assert_close((values, *(torch.cat([piece[i] for piece in found]) for i in (1, 2))), whole)


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("case", WEIGHTED, ids=str)
def test_a_weight_of_zero_contributes_exactly_nothing_whatever_its_logits_are(case, kind):
    objective, inputs = case.objective(), inputs_of(kind)
    if kind == "soft" and not objective.takes_soft_labels:
        pytest.skip("takes no soft labels")
    none = WEIGHTS == 0
    broken = inputs.map(lambda tensor: tensor.masked_fill(none.unsqueeze(-1), torch.nan))
    torch.manual_seed(SEED)
    found, expected = step(objective, broken, WEIGHTS), step(objective, inputs.rows(~none), WEIGHTS[~none])
    assert_close((found[0], found[1][~none], found[2][~none]), expected, 1e-13)
    assert (found[1][none] == 0).all()
    assert (found[2][none] == 0).all()
    if objective.modules():
        head = torch.nn.ParameterList(p for module in objective.modules().values() for p in module.parameters())
        total = sum(objective.losses(replace(broken.batch(), sample_weights=WEIGHTS)).values())
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(total, list(head)))


@pytest.mark.parametrize("loss", [tpkd_loss, kd_loss])
def test_weights_that_are_all_zero_give_a_zero_that_keeps_the_graph(loss):
    student, teacher, labels = make_pairs("random", 4, 5, seed=0)
    student.requires_grad_()
    found = loss(student, teacher, labels, sample_weights=torch.zeros(4))
    found.backward()
    assert found == 0
    assert (student.grad == 0).all()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_weights_of_cross_entropy_are_torchs(reduction):
    student, _, labels = make_pairs("random", 50, 7, seed=1)
    labels = labels.masked_fill(labels == 2, -100)
    classes = torch.linspace(0.2, 3.0, 7, dtype=torch.float64)
    weights = class_sample_weights(labels, classes)
    found, expected = student.clone().requires_grad_(), student.clone().requires_grad_()
    ours = cross_entropy_loss(found, labels, sample_weights=weights, reduction=reduction)
    torchs = functional.cross_entropy(expected, labels, weight=classes, reduction=reduction)
    assert_close([ours], [torchs], 1e-14)
    ours.sum().backward()
    torchs.sum().backward()
    assert_close([found.grad], [expected.grad], 1e-14)


def test_class_weights_of_soft_labels_are_their_mean_under_the_label():
    classes = torch.tensor([1.0, 2.0, 4.0])
    labels = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75], [0.0, 0.0, 0.0]])
    assert class_sample_weights(labels, classes).tolist() == [1.5, 3.5, 0.0]
    positions = labels.T.unsqueeze(0)  # (1, K, 3): classes where F.cross_entropy has them
    assert class_sample_weights(positions, classes).tolist() == [[1.5, 3.5, 0.0]]


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (torch.tensor([0, 3]), torch.ones(3), "labels: expected classes from 0 to 2, .* got 0 to 3"),
        (torch.tensor([0, -1]), torch.ones(3), "labels: expected classes from 0 to 2"),
        (torch.ones(2, 4) / 4, torch.ones(3), "labels: expected probabilities of the 3 classes"),
        (torch.tensor([0]), torch.ones(1, 3), r"class_weights: .* shape \(K,\), got \(1, 3\)"),
        (torch.tensor([0]), torch.tensor([1.0, -1.0]), "class_weights: expected nonnegative .* got -1.0 at position 1"),
    ],
)
def test_class_weights_that_do_not_fit_are_refused(labels, classes, message):
    with pytest.raises(ValueError, match=message):
        class_sample_weights(labels, classes)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.tensor([1.0, -0.5]), "sample_weights: expected nonnegative finite numbers, got -0.5 at position 1"),
        (torch.tensor([torch.nan, 1.0]), "sample_weights: expected nonnegative finite numbers, got nan at position 0"),
        (torch.tensor([1.0, torch.inf]), "sample_weights: .* got inf"),
        (torch.ones(3), r"sample_weights: expected the shape of the positions \(2,\), got \(3,\)"),
        (torch.ones(2, 3), r"sample_weights: expected the shape of the positions \(2,\), got \(2, 3\)"),
        (torch.ones(2, dtype=torch.complex64), "sample_weights: .* real numbers, got torch.complex64"),
        ([1.0, 1.0], "sample_weights: expected a torch.Tensor of real numbers, got list"),
    ],
)
@pytest.mark.parametrize("loss", [tpkd_loss, kd_loss])
def test_weights_that_are_none_are_refused(loss, weights, message):
    with pytest.raises(ValueError, match=message):
        loss(torch.zeros(2, 3), torch.zeros(2, 3), torch.tensor([0, 1]), sample_weights=weights)


def test_only_a_sum_of_weights_may_be_fractional():
    given = torch.zeros(2, 3), torch.zeros(2, 3), torch.tensor([0, 1])
    weights = torch.tensor([0.25, 0.5])
    for loss in (tpkd_loss, kd_loss):
        with pytest.raises(ValueError, match=r"num_items: expected a count of valid positions, got 1.5"):
            loss(*given, num_items=1.5)
        with pytest.raises(ValueError, match=r"num_items: expected the sum of the weights .* got -1"):
            loss(*given, num_items=-1, sample_weights=weights)
        half, whole = (loss(*given, num_items=count, sample_weights=weights) for count in (1.5, torch.tensor(0.75)))
        torch.testing.assert_close(2 * half, whole)


FUNCTIONS = {
    "tpkd": tpkd_loss,
    "kd": kd_loss,
    "dkd": dkd_loss,
    "kl-dist": kl_dist_loss,
    "xe-kl": xe_kl_loss,
    "ce": lambda z, zt, y, **tail: cross_entropy_loss(z, y, **tail),
    "dp": lambda z, zt, y, **tail: dp_loss(z, zt, torch.zeros_like(zt), y, supervised=True, **tail),
    "module": lambda z, zt, y, *, reduction="mean", **tail: TPKDLoss(reduction=reduction)(z, zt, y, **tail),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_pass_weights_on(name):
    student, teacher, labels = make_pairs("random", 12, 5, seed=3)
    loss = FUNCTIONS[name]
    each = loss(student, teacher, labels, reduction="none")
    found = loss(student, teacher, labels, sample_weights=WEIGHTS)
    assert_close([found], [(WEIGHTS * each).sum() / WEIGHTS.sum()])


def test_positions_beside_the_batch_have_weights_too():
    generator = torch.Generator().manual_seed(5)
    student, teacher = torch.randn(2, 2, 5, 3, generator=generator, dtype=torch.float64).unbind(0)
    labels, weights = torch.tensor([[0, 1, -100], [4, 2, 2]]), torch.tensor([[1.0, 0.0, 9.0], [2.0, 0.5, 1.0]])
    for loss in (tpkd_loss, kd_loss):
        each = loss(student, teacher, labels, reduction="none")
        found = loss(student, teacher, labels, sample_weights=weights, reduction="none")
        assert_close([found], [weights * each])
        mean = loss(student, teacher, labels, sample_weights=weights)
        assert_close([mean], [(weights * each).sum() / 4.5])


# The kernel and the tensor code, half precision, many correct classes, linear heads, compiled graphs.


def weighted_step(loss, student, *given, **tail):
    leaf = student.clone().requires_grad_()
    found = loss(leaf, *given, **tail)
    found.sum().backward()
    return found.detach(), leaf.grad


@pytest.mark.skipif(not has_kernel(), reason="the kernel was not built")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("kind", ["hard", "soft", "many"])
def test_the_kernel_weighs_as_the_tensor_code_does(kind, reduction):
    student, teacher, labels = make_pairs("random", 12, 1500, seed=4)
    weights, none = WEIGHTS, WEIGHTS == 0
    if kind != "hard":
        spread = 2 if kind == "soft" else 1100  # more correct classes than the kernel has room for
        labels = torch.zeros_like(student).scatter(-1, (labels.unsqueeze(-1) + torch.arange(spread)) % 1500, 1 / spread)
        labels[4] = 0.0  # ignored, whatever its weight
    student[none] = torch.nan
    expected = weighted_step(tpkd_loss, student, teacher, labels, sample_weights=weights, reduction=reduction)
    narrow = student.float(), teacher.float(), labels.float() if kind != "hard" else labels
    assert code_for(*narrow) == "cpu"
    assert code_for(student, teacher, labels) == "tensor"
    found = weighted_step(tpkd_loss, *narrow, sample_weights=weights.float(), reduction=reduction)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, atol=2e-5, rtol=2e-5)  # sums over 1500 classes in float32
    assert (found[1][none] == 0).all()
    if kind != "hard":
        assert (found[1][4] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("loss", [tpkd_loss, kd_loss])
def test_half_precision_is_weighed_in_float32(dtype, loss):
    student, teacher, labels = make_pairs("random", 12, 20, seed=6)
    student, teacher = student.to(dtype), teacher.to(dtype)
    value, gradient = weighted_step(loss, student, teacher, labels, sample_weights=WEIGHTS)
    expected = weighted_step(loss, student.double(), teacher.double(), labels, sample_weights=WEIGHTS)
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    torch.testing.assert_close(value.double(), expected[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradient.double(), expected[1], atol=EXACT[dtype], rtol=2 * EXACT[dtype])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_linear_head_weighs_its_rows(reduction):
    generator = torch.Generator().manual_seed(7)
    features, head = (torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (12, 9))
    teacher, labels = torch.randn(12, 9, generator=generator, dtype=torch.float64), torch.arange(12) % 9
    labels[1] = -100
    features[WEIGHTS == 0] = torch.nan
    tail = {"sample_weights": WEIGHTS, "reduction": reduction}
    f, w = features.clone().requires_grad_(), head.clone().requires_grad_()
    found = linear_tpkd_loss(f, w, teacher, labels, **tail)
    found.sum().backward()
    clean = features.nan_to_num().requires_grad_()
    g = head.clone().requires_grad_()
    expected = tpkd_loss(clean @ g.T, teacher, labels, **tail)
    expected.sum().backward()
    assert_close((found, f.grad, w.grad), (expected, clean.grad, g.grad))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_truncated_teachers_are_weighed(dtype):
    student, teacher, labels = make_pairs("random", 12, 9, seed=8)
    top = teacher.log_softmax(-1).topk(3)
    given = student.to(dtype), top.values.to(dtype), top.indices, labels
    tolerance = EXACT[dtype] * 10
    for loss in (top_k_tpkd_loss, top_k_kd_loss):
        each = loss(*given, reduction="none").double()
        found = loss(*given, sample_weights=WEIGHTS).double()
        assert_close([found], [(WEIGHTS * each).sum() / WEIGHTS.sum()], tolerance)
    truncated = TopK(given[1], top.indices)
    for objective in (create("tpkd"), KD(temperature=1.0), create("tpkd-no-projection")):
        each = objective(given[0], truncated, labels, reduction="none").double()
        found = objective(given[0], truncated, labels, sample_weights=WEIGHTS).double()
        assert_close([found], [(WEIGHTS * each).sum() / WEIGHTS.sum()], tolerance)
    eye = torch.eye(9, dtype=dtype)
    linear = linear_top_k_tpkd_loss(given[0], eye, *given[1:], sample_weights=WEIGHTS).double()
    assert_close([linear], [top_k_tpkd_loss(*given, sample_weights=WEIGHTS).double()], tolerance)


@pytest.mark.parametrize("num_classes", [20, 4000], ids=["traced", "kernel"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("loss", [tpkd_loss, kd_loss])
def test_a_compiled_graph_weighs_without_a_break(loss, reduction, num_classes):
    student, teacher, labels = make_pairs("random", 12, num_classes, seed=9, dtype=torch.float32)
    student[WEIGHTS == 0] = torch.nan
    labels[3] = -100
    weights = WEIGHTS.float()
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    found = weighted_step(compiled, student, teacher, labels, sample_weights=weights, reduction=reduction)
    expected = weighted_step(loss, student, teacher, labels, sample_weights=weights, reduction=reduction)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    assert (found[1][WEIGHTS == 0] == 0).all()
