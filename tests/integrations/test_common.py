"""What all drop-ins share: objectives a host can serve, teachers nobody sees, and means over many batches."""

import pytest
import torch
from torch import nn

from strategies import INTEGER_TYPES, labels_of_type, make_pairs
from tpkd.errors import InputError
from tpkd.geometry.top_k import TopK
from tpkd.integrations.common import MonitorMeans, build_batch, choose_objective, choose_teacher, move_logits
from tpkd.objectives import create, top_k_tpkd_loss, tpkd_loss
from tpkd.teacher.cache.truncation import truncate
from tpkd.theory import diagnose


def test_an_objective_comes_by_name_with_settings_or_as_it_is():
    objective = create("kd", temperature=2.0)
    assert choose_objective(objective, host="a loop") is objective
    assert choose_objective("kd", {"temperature": 2.0}, host="a loop") == objective
    with pytest.raises(InputError, match="settings: expected none beside an objective that has its own, got beta"):
        choose_objective(objective, {"beta": 1.0}, host="a loop")
    with pytest.raises(ValueError, match="did you mean tpkd"):
        choose_objective("tkpd", host="a loop")


def test_what_a_host_cannot_give_is_named_with_the_host():
    with pytest.raises(InputError, match=r"'dkd' needs epoch, which timm cannot give: .*, set warmup_epochs=0, or"):
        choose_objective("dkd", host="timm")
    assert choose_objective("dkd", {"warmup_epochs": 0}, host="timm").name == "dkd"
    with pytest.raises(InputError, match="teacher: expected a model or a teacher cache, because objective 'kd' asks"):
        choose_objective("kd", host="timm", has_teacher=False)
    assert choose_objective("ce", host="timm", has_teacher=False).name == "ce"


def test_a_loss_of_the_whole_batch_is_refused_even_where_its_needs_are_met():
    objective = create("dhkd")
    with pytest.raises(InputError, match="'dhkd' needs the whole batch at once"):
        choose_objective(objective, host="timm", gives=objective.needs)


def test_a_teacher_is_a_network_or_a_cache_or_none():
    student, network = nn.Linear(4, 3), nn.Linear(4, 3)
    assert choose_teacher(None, student) is None
    assert choose_teacher(network, student).about is network
    with pytest.raises(InputError, match="expected a network, a teacher cache or the directory of one, got int"):
        choose_teacher(3, student)
    with pytest.raises(InputError, match=r"org/name: expected a teacher cache, .*\.from_pretrained\('org/name'\)$"):
        choose_teacher("org/name", student)
    with pytest.raises(InputError, match="got one that shares weight with the student"):
        choose_teacher(student, student)


def test_a_batch_of_tokens_has_the_loss_of_its_rows():
    student, teacher = torch.randn(2, 4, 6, 5)
    labels = torch.randint(5, (4, 6))
    labels[1] = -100
    batch = build_batch(student, labels, teacher)
    expected = tpkd_loss(student.reshape(-1, 5), teacher.reshape(-1, 5), labels.reshape(-1))
    torch.testing.assert_close(create("tpkd").losses(batch)["loss"], expected)


def test_soft_labels_of_tokens_have_classes_last_too():
    student, teacher = torch.randn(2, 4, 6, 5)
    labels = soft_labels(24, 5).view(4, 6, 5)
    labels[1] = 0
    batch = build_batch(student, labels, teacher)
    expected = tpkd_loss(*(each.reshape(-1, 5) for each in (student, teacher, labels)))
    torch.testing.assert_close(create("tpkd").losses(batch)["loss"], expected)
    single = build_batch(student[0], labels[0], teacher[0])
    assert single.labels.equal(labels[0])


def test_a_truncated_teacher_of_tokens_is_passed_on():
    student, teacher = torch.randn(2, 4, 6, 5)
    labels = torch.randint(5, (4, 6))
    kept = truncate(teacher.view(24, 5), labels.flatten(), 2)
    tokens = TopK(*(getattr(kept, name).view(4, 6, *getattr(kept, name).shape[1:]) for name in vars(kept)))
    batch = build_batch(student, labels, tokens)
    others = {"label_log_probs": kept.label_log_probs, "rest_log_probs": kept.rest_log_probs}
    expected = top_k_tpkd_loss(student.view(24, 5), kept.log_probs, kept.indices, labels.flatten(), **others)
    torch.testing.assert_close(create("tpkd").losses(batch)["loss"], expected)


def test_every_tensor_of_a_truncated_teacher_is_moved():
    moved = move_logits(truncate(torch.randn(3, 5), torch.tensor([0, 1, 2]), 2), torch.device("meta"))
    assert {getattr(moved, name).device.type for name in vars(moved)} == {"meta"}
    assert move_logits(torch.zeros(2, 3), torch.device("meta")).device.type == "meta"


def soft_labels(rows, num_classes, seed=0):
    """Mixtures of two different classes."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.arange(rows) % num_classes
    second = (first + torch.randint(1, num_classes, (rows,), generator=generator)) % num_classes
    weight = torch.rand(rows, 1, generator=generator)
    one_hot = torch.nn.functional.one_hot
    return weight * one_hot(first, num_classes) + (1 - weight) * one_hot(second, num_classes)


@pytest.mark.parametrize("class_axis", [1, -1])
def test_means_of_soft_labels_leave_out_what_cannot_be_seen(class_axis):
    student, teacher = 3 * torch.randn(2, 40, 5, generator=torch.Generator().manual_seed(0))
    labels, valid = soft_labels(40, 5), torch.ones(40, dtype=torch.bool)
    expected = diagnose(student[4:], teacher[4:], labels[4:]).summary()
    labels[0], labels[1] = 0, torch.tensor([0.6, 0.1, 0.1, 0.1, 0.1])  # ignored, and nothing outside
    student[2, 1], teacher[3, 0] = torch.nan, torch.inf
    valid[:4] = False
    means = MonitorMeans()
    for start, stop in ((0, 10), (10, 37), (37, 40)):
        parts = (each[start:stop].unsqueeze(1) for each in (student, teacher, labels))
        means.add(*(each.movedim(-1, class_axis) for each in parts), class_axis=class_axis)
    found = means.take()
    assert found.pop("blocked_share") == pytest.approx(expected["blocked_share"])
    assert found == pytest.approx({name: expected["all"][name] for name in found}, rel=1e-5)


def test_means_of_soft_labels_in_half_precision_are_taken():
    student, teacher = torch.randn(2, 40, 5)
    labels = soft_labels(40, 5).bfloat16()
    assert (labels.float().sum(-1) - 1).abs().max() > 1e-4
    found, expected = MonitorMeans(), MonitorMeans()
    found.add(student, teacher, labels)
    expected.add(student, teacher, labels.float() / labels.float().sum(-1, keepdim=True))
    assert found.take() == pytest.approx(expected.take(), rel=1e-5)


def test_means_of_a_truncated_teacher_are_weighed_by_the_rows_that_bound_something():
    """Without the label's log-probability a row enters no bound; the other means take it."""
    student, teacher = 3 * torch.randn(2, 40, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) % 6
    kept = truncate(teacher, labels, 2)
    kept.label_log_probs[:15] = torch.nan
    kept.log_probs[37, 1] = torch.nan
    means = MonitorMeans()
    for rows in (slice(0, 10), slice(10, 13), slice(13, 40)):
        means.add(student[rows], kept[rows], labels[rows])
    seen = torch.arange(40) != 37
    expected = diagnose(student[seen], kept[seen], labels[seen]).summary()
    found = means.take()
    assert found.pop("blocked_share") == pytest.approx(expected["blocked_share"])
    assert found == pytest.approx({name: expected["all"][name] for name in found}, rel=1e-5)
    assert 0 < expected["without_label"]["examples"] < 39


def test_means_over_batches_are_those_of_all_valid_positions_together():
    student, teacher = 3 * torch.randn(2, 40, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) % 5
    means, broken, masked = MonitorMeans(), student.clone(), labels.clone()
    broken[3, 1], teacher[17, 0], masked[20:33] = torch.nan, torch.inf, -100
    for start, stop in ((0, 10), (10, 37), (37, 40)):
        means.add(broken[start:stop], teacher[start:stop], masked[start:stop])
    valid = masked != -100
    valid[[3, 17]] = False
    expected = diagnose(student[valid], teacher[valid], labels[valid]).summary()
    found = means.take()
    assert found.pop("blocked_share") == pytest.approx(expected["blocked_share"])
    assert found == pytest.approx({name: expected["all"][name] for name in found}, rel=1e-5)
    assert means.take() == {}


def test_processes_are_summed_before_they_are_divided():
    logits = torch.randn(3, 5)
    one, other = MonitorMeans(), MonitorMeans()
    one.add(logits, logits.flip(0), torch.tensor([0, 1, 2]))
    other.add(logits, logits.flip(0), torch.tensor([-100, -100, -100]))
    alone = MonitorMeans()
    alone.add(logits, logits.flip(0), torch.tensor([0, 1, 2]))
    sums = one._sums + other._sums
    assert other.take(lambda _: sums) == pytest.approx(alone.take())


def test_two_classes_and_no_valid_position_show_nothing():
    means = MonitorMeans()
    means.add(torch.randn(3, 2), torch.randn(3, 2), torch.tensor([0, 1, 0]))
    means.add(torch.randn(3, 4), torch.randn(3, 4), torch.full((3,), -100))
    assert means.take() == {}


def test_monitored_labels_mean_the_same_in_every_integer_type():
    student, teacher, _ = make_pairs("random", 5, 300, seed=1)
    student[4] = torch.nan
    for dtype in INTEGER_TYPES:
        found, expected = MonitorMeans(), MonitorMeans()
        labels = labels_of_type(dtype, 5, 300)
        found.add(student, teacher, labels)
        expected.add(student, teacher, labels.long())
        assert found.take() == expected.take(), dtype
