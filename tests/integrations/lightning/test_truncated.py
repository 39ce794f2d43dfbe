"""A cache that kept the largest classes alone, in a Lightning step."""

import pytest
import torch

from integrations.lightning.test_monitor import Keep
from integrations.lightning.tiny import CLASSES, Student, assert_close, data, fit, network, soft_data
from tpkd.errors import InputError
from tpkd.integrations.lightning import MonitorCallback
from tpkd.objectives import top_k_tpkd_loss
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows
from tpkd.theory import observe

IDS = torch.arange(100, 164)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """The two largest of five classes; where the data have no label, that of class 0."""
    inputs, labels = data()
    rows = CacheRows(IDS.numpy(), [0] * 64, lambda start, stop: inputs[start:stop], labels.clamp(min=0).numpy())
    directory = tmp_path_factory.mktemp("truncated") / "cache"
    recipe = CacheRecipe("teacher", "data", {}, None, CLASSES, top_k=2)
    build_cache(directory, rows, lambda block: {"logits": network(7)(block)}, recipe)
    return directory


def batches(size, labels=None):
    inputs, own = data()
    return list(zip(inputs.split(size), (own if labels is None else labels).split(size), IDS.split(size), strict=True))


@pytest.mark.parametrize("settings", [{}, {"temperature": 4.0, "beta": 1.0}], ids=["paper", "temperature"])
def test_its_gradient_is_that_of_the_loss_of_truncated_teachers(cache, settings):
    student, (inputs, labels), net = Student().distill_from(cache, **settings), data(), network(0)
    (found,) = fit(student, batches(16), accumulate_grad_batches=4)
    kept = open_cache(cache).read(IDS)
    others = {"label_log_probs": kept.label_log_probs, "rest_log_probs": kept.rest_log_probs}
    top_k_tpkd_loss(net(inputs), kept.log_probs, kept.indices, labels, **others, **settings).backward()
    assert_close(found, {f"net.{name}": each.grad for name, each in net.named_parameters()})


def test_the_monitor_logs_its_bounds(cache):
    keep, (inputs, labels) = Keep(), data()
    callbacks = [MonitorCallback(every=1, prefix=""), keep]
    fit(Student().distill_from(cache), batches(16), callbacks, accumulate_grad_batches=4)
    expected = observe(network(0)(inputs), open_cache(cache).read(IDS), labels)
    assert keep.logged[-1] == pytest.approx({name: each.item() for name, each in expected.items()}, rel=1e-5)


@pytest.mark.parametrize("name", ["kd", "dkd", "kl-dist", "xe-kl", "safe-full-kl"])
def test_who_needs_all_classes_refuses_it_before_any_step(cache, name):
    message = f"teacher: objective '{name}' needs all classes, found a cache that kept the 2 largest of each row"
    with pytest.raises(InputError, match=message):
        Student().distill_from(cache, name)
    assert Student().distill_from(cache, "ce")._teacher.top_k == 2


def test_it_goes_with_the_labels_it_was_built_with(cache):
    other = torch.where(data()[1] < 0, -100, (data()[1] + 1) % CLASSES)
    with pytest.raises(InputError, match="labels: expected those that the teacher cache was built with"):
        fit(Student().distill_from(cache), batches(16, other))
    with pytest.raises(ValueError, match="expected integer class indices with a truncated teacher, got probabilities"):
        fit(Student().distill_from(cache), batches(16, soft_data()[1]))
