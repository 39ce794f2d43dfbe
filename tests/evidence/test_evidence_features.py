"""The data and teachers of frozen features: what students may draw, and what their teachers are."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from tools.evidence_features import POOL, draw_pool, smoothed_probe
from torch.nn import functional

from tpkd.config.loading import load_config

CONFIGS = Path(__file__).parents[2] / "configs"
PARTS = ("clinc-a", "clinc-c", "hwu-a", "hwu-c")


def test_a_class_gives_at_most_half_of_its_texts_and_at_most_forty():
    labels = np.repeat(np.arange(4), (200, 60, 7, 1))
    pool = draw_pool(labels)
    assert np.bincount(labels[pool]).tolist() == [POOL, 30, 3, 1]
    assert draw_pool(labels).tolist() == pool.tolist()
    assert draw_pool(labels, seed=1).tolist() != pool.tolist()


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    return torch.randn(90, 4, generator=generator) + torch.eye(4)[labels], labels


def test_without_smoothing_a_teacher_is_a_logistic_regression(rows):
    features, labels = rows
    found = smoothed_probe(features, labels, 3, C=0.1, smoothing=0.0)
    oracle = LogisticRegression(C=0.1, tol=1e-8, max_iter=1000).fit(features.double().numpy(), labels.numpy())
    # both stop near the minimum, at gradients of 1e-6
    np.testing.assert_allclose(found.weight.detach(), oracle.coef_, atol=1e-3)


def test_a_smoothed_teacher_is_where_the_penalised_smoothed_loss_has_no_slope(rows):
    features, labels = rows
    found = smoothed_probe(features, labels, 3, C=1.0, smoothing=0.1)
    targets = 0.9 * functional.one_hot(labels, 3) + 0.1 / 3
    slope = (found(features).softmax(-1) - targets).T @ features + found.weight  # of the sum over 90 rows
    assert slope.abs().max() < 1e-2
    assert (
        found(features).softmax(-1).max()
        < smoothed_probe(features, labels, 3, C=1.0, smoothing=0.0)(features).softmax(-1).max()
    )


@pytest.mark.parametrize("part", PARTS)
def test_the_four_parts_differ_in_data_batch_and_teacher_alone(part):
    own = {"output": True, "batch_size": True, "data": {"name"}, "teacher": {"weights"}}
    config, first = (
        load_config(CONFIGS / f"evidence-features-{name}.yaml", methods=False) for name in (part, PARTS[0])
    )
    assert config.model_dump(exclude=own) == first.model_dump(exclude=own)
    assert set(config.variants) == {"kd-t1", "tpkd-b2", "tpkd-t4", "tpkd-no-projection-t4"}
    assert config.teacher.weights.endswith(f"teacher-{part[-1]}.safetensors")
