"""What all loss functions share: shapes, masks, reductions, and what they refuse."""

import inspect
import math

import pytest
import torch

from strategies import INTEGER_TYPES, labels_of_type
from tpkd.objectives import (
    BinaryKL,
    BinaryKLNorm,
    RowObjective,
    create,
    cross_entropy_loss,
    dkd_loss,
    dp_loss,
    kd_loss,
    kl_dist_loss,
    names,
    tpkd_loss,
    xe_kl_loss,
)

TAIL = ("sample_weights", "ignore_index", "reduction", "num_items")
ROW_OBJECTIVES = {name: create(name) for name in names() if isinstance(create(name), RowObjective)}


def loss_of(name, make=create):
    """A registered objective as a function of logits, teacher and labels; its settings by keyword."""

    def loss(student, teacher, labels=None, **given):
        tail = {key: given.pop(key) for key in TAIL if key in given}
        objective = make(name, **given)
        if "initial_logits" in objective.needs:
            tail["initial_logits"] = torch.zeros_like(teacher)
        if "epoch" in objective.needs:
            tail["epoch"] = 3
        return objective(student, teacher, labels, **tail)

    return loss


LOSSES = {
    **{name: loss_of(name) for name in ROW_OBJECTIVES},
    "binary-kl-norm": loss_of("binary-kl-norm", lambda name, **settings: BinaryKLNorm(**settings)),
    "binary-kl": loss_of("binary-kl", lambda name, **settings: BinaryKL(**settings)),
}
NEEDS_THREE_CLASSES = [name for name, objective in ROW_OBJECTIVES.items() if objective.min_classes == 3]
WITH_TEACHER = [name for name in LOSSES if name not in ROW_OBJECTIVES or "teacher_logits" in ROW_OBJECTIVES[name].needs]
each_loss = pytest.mark.parametrize("name", LOSSES)
each_with_teacher = pytest.mark.parametrize("name", WITH_TEACHER)


def example(*shape, seed=0, dtype=torch.float64):
    """Logits of a shape with the classes on axis 1 (axis 0 of a vector), and labels."""
    generator = torch.Generator().manual_seed(seed)
    z, zt = torch.randn(2, *shape, generator=generator, dtype=torch.float64).to(dtype)
    axis = 0 if len(shape) == 1 else 1
    positions = [n for i, n in enumerate(shape) if i != axis]
    return z, zt, torch.randint(shape[axis], positions, generator=generator)


@each_loss
def test_positions_are_rows(name):
    """`(N, K, d1, d2)` is the batch of its positions, as in torch's cross-entropy; a vector is a batch of one."""
    loss = LOSSES[name]
    z, zt, y = example(2, 5, 3, 4)
    y[0, 1, 2] = -100
    student = z.clone().requires_grad_()
    values = loss(student, zt, y, reduction="none")
    assert values.shape == y.shape
    values.sum().backward()
    flat = z.movedim(1, -1).reshape(-1, 5).requires_grad_()
    expected = loss(flat, zt.movedim(1, -1).reshape(-1, 5), y.reshape(-1), reduction="none")
    expected.sum().backward()
    torch.testing.assert_close(values.reshape(-1), expected, atol=1e-14, rtol=0)
    torch.testing.assert_close(student.grad.movedim(1, -1).reshape(-1, 5), flat.grad, atol=1e-14, rtol=0)
    one = loss(z[0, :, 0, 0], zt[0, :, 0, 0], y[0, 0, 0], reduction="none")
    assert one.shape == ()
    torch.testing.assert_close(one, values.detach()[0, 0, 0], atol=1e-14, rtol=0)


@each_loss
def test_reductions(name):
    loss = LOSSES[name]
    z, zt, y = example(6, 5)
    y[2] = 4
    values = loss(z, zt, y, reduction="none", ignore_index=4)
    assert values[2] == 0
    valid = (y != 4).sum()
    torch.testing.assert_close(loss(z, zt, y, reduction="sum", ignore_index=4), values.sum(), atol=1e-14, rtol=0)
    torch.testing.assert_close(loss(z, zt, y, ignore_index=4), values.sum() / valid, atol=1e-14, rtol=0)
    torch.testing.assert_close(loss(z, zt, y, ignore_index=4, num_items=9), values.sum() / 9, atol=1e-14, rtol=0)


@each_loss
def test_labels_mean_the_same_in_every_integer_type(name):
    """Whatever is ignored: nothing, a class, or a number that the type has as another one."""
    for dtype in INTEGER_TYPES:
        for num_classes in (5, 256, 40_000 if dtype.itemsize == 2 else 300):
            z, zt, _ = example(5, num_classes)
            y = labels_of_type(dtype, 5, num_classes)
            for ignored in (-100, int(y[1]), num_classes - 1, 2**40, -(2**63)):
                found = LOSSES[name](z, zt, y, ignore_index=ignored, reduction="none")
                expected = LOSSES[name](z, zt, y.long(), ignore_index=ignored, reduction="none")
                assert torch.equal(found, expected), (dtype, num_classes, ignored)


@pytest.mark.parametrize("loss", [tpkd_loss, kd_loss, dkd_loss])
def test_compiled_losses_know_every_integer_type(loss):
    torch.compiler.reset()  # or recompiling for other types comes to its limit
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    z, zt, _ = example(5, 300)
    for dtype in (torch.uint8, torch.int8, torch.uint16, torch.uint64):
        y = labels_of_type(dtype, 5, 300)
        torch.testing.assert_close(compiled(z, zt, y), loss(z, zt, y.long()), rtol=1e-12, atol=0)


@each_loss
def test_an_empty_batch_is_zero_with_a_graph(name):
    z, zt, y = example(0, 5)
    student = z.requires_grad_()
    loss = LOSSES[name](student, zt, y)
    loss.backward()
    assert loss == 0
    assert student.grad.shape == (0, 5)


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in NEEDS_THREE_CLASSES])
def test_two_classes_are_enough(name):
    z, zt, y = example(4, 2)
    assert LOSSES[name](z, zt, y).isfinite()


@pytest.mark.parametrize("name", ["kl-dist", "binary-kl-norm", "binary-kl"])
def test_labels_only_mask_and_may_be_left_out(name):
    z, zt, y = example(6, 5)
    assert torch.equal(LOSSES[name](z, zt), LOSSES[name](z, zt, y))
    assert torch.equal(LOSSES[name](z, zt, None), LOSSES[name](z, zt, (y + 1) % 5))


def test_unsupervised_partition_needs_no_labels():
    z, zt, y = example(6, 5)
    initial = torch.zeros_like(z)
    assert torch.equal(dp_loss(z, zt, initial, supervised=False), dp_loss(z, zt, initial, y, supervised=False))
    with pytest.raises(ValueError, match="labels: expected class indices for the supervised partition"):
        dp_loss(z, zt, initial, supervised=True)


def test_signatures_are_the_contract():
    """The tail of every loss, and the defaults of each."""
    for loss in (tpkd_loss, kd_loss, dkd_loss, kl_dist_loss, xe_kl_loss, cross_entropy_loss, dp_loss):
        tail = list(inspect.signature(loss).parameters.values())[-4:]
        assert [(p.name, p.default) for p in tail] == [
            ("sample_weights", None),
            ("ignore_index", -100),
            ("reduction", "mean"),
            ("num_items", None),
        ]
        assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in tail)


FUNCTIONS = {"tpkd": tpkd_loss, "kd": kd_loss, "dkd": dkd_loss, "kl-dist": kl_dist_loss, "xe-kl": xe_kl_loss}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_its_objective_with_the_same_settings(name):
    """By default, and with every setting another one: none is left out, and none taken for another."""
    function, fixed = FUNCTIONS[name], {"warmup_epochs": 0} if name == "dkd" else {}
    parameters = inspect.signature(function).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in TAIL}
    assert vars(create(name, **fixed)) == defaults | fixed
    others = {key: 0.3 + 0.1 * at for at, key in enumerate(defaults) if key != "label_term"}
    batch = example(4, 5)
    for settings in ({}, others, {"label_term": "double-softmax"} if name == "xe-kl" else {}):
        expected = create(name, **fixed, **settings)(*batch, reduction="sum", ignore_index=2)
        assert torch.equal(function(*batch, **settings, reduction="sum", ignore_index=2), expected)
        assert torch.equal(function(*batch, num_items=9), create(name, **fixed)(*batch, num_items=9))


def test_functions_of_other_arguments_are_their_objectives():
    z, zt, y = example(4, 5)
    assert torch.equal(cross_entropy_loss(z, y, num_items=9), create("ce")(z, None, y, num_items=9))
    for name, supervised in (("dp-u", False), ("dp-s", True)):
        settings = {"temperature": 2.0}
        expected = create(name, **settings)(z, zt, y, initial_logits=z.flip(0), reduction="none")
        assert torch.equal(dp_loss(z, zt, z.flip(0), y, supervised=supervised, reduction="none", **settings), expected)


# Bad input: the message names the argument, what was expected and what came.


@each_with_teacher
def test_a_teacher_of_another_shape_is_refused(name):
    z, _, y = example(4, 5)
    with pytest.raises(
        ValueError, match=r"teacher_logits: expected the shape of student_logits \(4, 5\), got \(4, 6\)"
    ):
        LOSSES[name](z, torch.zeros(4, 6), y)


@each_loss
def test_labels_of_another_shape_are_refused(name):
    z, zt, y = example(4, 5)
    with pytest.raises(ValueError, match=r"labels: expected shape \(4,\), got \(3,\)"):
        LOSSES[name](z, zt, y[:3])
    with pytest.raises(ValueError, match=r"labels: expected shape \(4,\), got \(4, 1\)"):
        LOSSES[name](z, zt, y.unsqueeze(-1))


@pytest.mark.parametrize(
    ("name", "shown"), [("dkd", "dkd"), ("dp-u", "dp-u"), ("dp-s", "dp-s"), ("binary-kl", "BinaryKL")]
)
def test_soft_labels_are_refused_by_name_with_advice(name, shown):
    z, zt, _ = example(4, 5)
    with pytest.raises(ValueError, match=rf"labels: objective '{shown}' takes integer classes, got .*use ce, kd"):
        LOSSES[name](z, zt, torch.full((4, 5), 0.2))


@each_loss
def test_labels_that_are_no_indices_are_refused(name):
    z, zt, y = example(4, 5)
    with pytest.raises(ValueError, match=r"labels: expected .* got torch\.bool"):
        LOSSES[name](z, zt, y > 2)
    with pytest.raises(ValueError, match=r"labels: expected a torch\.Tensor.*got list"):
        LOSSES[name](z, zt, y.tolist())


@each_loss
@pytest.mark.parametrize("label", [-1, 5, -101])
def test_a_label_out_of_range_is_refused(name, label):
    z, zt, y = example(4, 5)
    y[2] = label
    with pytest.raises(
        ValueError, match=rf"labels: expected class indices from 0 to 4.*got {label} at position \(2,\)"
    ):
        LOSSES[name](z, zt, y)


@each_loss
def test_labels_that_no_int64_holds_are_refused(name):
    z, zt, _ = example(4, 5)
    for label in (2**64 - 100, 2**63):
        y = torch.tensor([0, 1, label, 3], dtype=torch.uint64)
        with pytest.raises(ValueError, match=rf"labels: expected .* from 0 to 4.*got {label} at position \(2,\)"):
            LOSSES[name](z, zt, y)


@each_loss
@pytest.mark.parametrize("ignored", [1.5, None, 2**63, torch.tensor([1, 2])])
def test_an_ignore_index_that_is_no_integer_is_refused(name, ignored):
    with pytest.raises(ValueError, match=r"ignore_index: expected an integer .*, got"):
        LOSSES[name](*example(4, 5), ignore_index=ignored)


@each_loss
def test_integer_student_logits_are_refused(name):
    z, zt, y = example(4, 5)
    with pytest.raises(ValueError, match=r"student_logits: expected floating-point logits, got torch\.int64"):
        LOSSES[name](z.long(), zt, y)


@each_with_teacher
def test_integer_teacher_logits_are_refused(name):
    z, zt, y = example(4, 5)
    with pytest.raises(ValueError, match=r"teacher_logits: expected floating-point logits, got torch\.int64"):
        LOSSES[name](z, zt.long(), y)


@each_loss
def test_logits_without_classes_are_refused(name):
    _, zt, y = example(4, 5)
    with pytest.raises(ValueError, match=r"student_logits: expected at least one axis of classes, got a scalar"):
        LOSSES[name](torch.tensor(1.0), zt, y)


@pytest.mark.parametrize("name", ["kd", "dkd", "kl-dist", "xe-kl", "tpkd", "safe-full-kl", "binary-kl"])
def test_logits_that_are_no_tensor_are_refused(name):
    z, zt, y = example(4, 5)
    with pytest.raises(ValueError, match=r"teacher_logits: expected a torch\.Tensor of logits, got ndarray"):
        LOSSES[name](z, zt.numpy(), y)


@each_loss
def test_too_few_classes_are_refused_with_the_reason(name):
    fewest = 3 if name in NEEDS_THREE_CLASSES else 2
    z, zt, y = example(4, fewest - 1)
    with pytest.raises(
        ValueError, match=rf"student_logits: expected at least {fewest} classes, got {fewest - 1}"
    ) as error:
        LOSSES[name](z, zt, torch.zeros_like(y))
    assert ("conditional distribution" in str(error.value)) == (fewest == 3)


@each_loss
def test_an_unknown_reduction_is_refused(name):
    with pytest.raises(ValueError, match=r"reduction: expected 'mean', 'sum' or 'none', got 'batchmean'"):
        LOSSES[name](*example(4, 5), reduction="batchmean")


@each_loss
def test_a_bad_count_is_refused(name):
    for reduction in ("sum", "none"):
        with pytest.raises(ValueError, match=r"num_items: expected None with reduction="):
            LOSSES[name](*example(4, 5), reduction=reduction, num_items=4)
    with pytest.raises(ValueError, match=r"num_items: expected a count of valid positions, got -1"):
        LOSSES[name](*example(4, 5), num_items=-1)
    for wrong in (2.5, torch.tensor(-1), math.inf, math.nan, "3"):
        with pytest.raises(ValueError, match=r"num_items: expected a count of valid positions"):
            LOSSES[name](*example(4, 5), num_items=wrong)
    assert LOSSES[name](*example(4, 5), num_items=torch.tensor([4])).shape == ()
    with pytest.raises(ValueError, match=r"num_items: expected one count, got a tensor of shape \(2,\)"):
        LOSSES[name](*example(4, 5), num_items=torch.tensor([4, 4]))


@each_loss
def test_no_positions_are_no_loss(name):
    for positions in ((0,), (2, 0)):
        shape = (*positions[:1], 5, *positions[1:])
        student = torch.zeros(shape, requires_grad=True)
        loss = LOSSES[name](student, torch.zeros(shape), torch.zeros(positions, dtype=torch.long))
        loss.backward()
        assert loss == 0
        assert student.grad.shape == shape


@pytest.mark.parametrize("beta", [-0.1, float("nan"), float("inf"), "3", None])
@pytest.mark.parametrize("name", ["tpkd", "tpkd-no-ce", "safe-full-kl", "tpkd-no-projection", "compensation-only"])
def test_a_bad_beta_is_refused(name, beta):
    with pytest.raises(ValueError, match="beta: expected a nonnegative finite weight"):
        LOSSES[name](*example(4, 5), beta=beta)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["kd", "dkd", "kl-dist", "xe-kl", "dp-u", "dp-s", "binary-kl-norm", "binary-kl"])
def test_a_bad_temperature_is_refused(name, temperature):
    with pytest.raises(ValueError, match="temperature: expected a positive finite number"):
        LOSSES[name](*example(4, 5), temperature=temperature)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("kd", "ce_weight"),
        ("kd", "kd_weight"),
        ("dkd", "alpha"),
        ("dkd", "beta"),
        ("dkd", "ce_weight"),
        ("dkd", "kd_weight"),
    ],
)
def test_a_negative_weight_is_refused(name, setting):
    with pytest.raises(ValueError, match=f"{setting}: expected a nonnegative finite weight, got -0.5"):
        LOSSES[name](*example(4, 5), **{setting: -0.5})


def test_a_bad_mixture_is_refused():
    for mix in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="mix: expected the weight of imitation, from 0 to 1"):
            xe_kl_loss(*example(4, 5), mix=mix)
    with pytest.raises(ValueError, match="label_term: expected 'cross-entropy' or 'double-softmax', got 'ce'"):
        xe_kl_loss(*example(4, 5), label_term="ce")


def test_initial_logits_are_checked_like_a_teacher():
    z, zt, y = example(4, 5)
    with pytest.raises(ValueError, match=r"initial_logits: expected the shape of student_logits"):
        dp_loss(z, zt, zt[:3], y, supervised=True)
    with pytest.raises(ValueError, match=r"initial_logits: expected a torch\.Tensor of logits, got ndarray"):
        dp_loss(z, zt, zt.numpy(), y, supervised=True)


@pytest.mark.parametrize("name", ["tpkd", "kd", "dkd", "xe-kl"])
def test_missing_labels_and_a_teacher_of_other_axes_are_refused(name):
    student, teacher, labels = example(4, 5)
    with pytest.raises(ValueError, match=r"labels: expected a torch.Tensor of class indices, got NoneType"):
        LOSSES[name](student, teacher, None)
    with pytest.raises(ValueError, match=r"teacher_logits: expected the shape of student_logits \(4, 5\), got \(5,\)"):
        LOSSES[name](student, teacher[0], labels)
    with pytest.raises(ValueError, match=r"student_logits: expected a torch.Tensor of logits, got list"):
        LOSSES[name](student.tolist(), teacher, labels)
