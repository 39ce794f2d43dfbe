"""The shipped configurations on published data, cut down: cache, training, continuation, on images and on texts."""

from pathlib import Path

import numpy as np
import pytest
import torch

from models.networks import real_data
from tpkd.config.loading import load_config
from tpkd.data.configured import load_data
from tpkd.teacher import caching
from tpkd.teacher.cache.read import open_cache
from tpkd.training.loop import train
from training.equality import assert_same_run

CONFIGS = Path(__file__).parents[2] / "configs"


class StopError(Exception):
    pass


def stop(report):
    if report.step == 3:
        raise StopError


def train_twice(config, directory):
    """Once whole, once stopped and continued: the same bits."""
    result = train(config, directory / "whole")
    with pytest.raises(StopError):
        train(config, directory / "parts", on_step=stop)
    train(config, directory / "parts")
    assert_same_run(directory / "whole", directory / "parts")
    return result


def test_cifar100_from_a_published_teacher(tmp_path):
    real_data()
    overrides = ["limit=48", "epochs=2", "evaluation.limit=32", "snapshots=[]", "batch_size=24", "checkpoints.every=2"]
    place = [f"teacher.cache={tmp_path / 'cache'}", "student.model=builtin:resnet8", "tensorboard=false"]
    config = load_config(CONFIGS / "cpu-vision.yaml", [*overrides, *place])
    caching.build(config)
    assert caching.verify(tmp_path / "cache", config, sample=8).passes
    data = load_data(config, "train")
    cache = open_cache(tmp_path / "cache")
    right = cache.read(np.repeat(data.ids, 8), np.tile(np.arange(8), 48)).argmax(-1).numpy() == data.labels.repeat(8)
    assert right.mean() > 0.9  # published: 99.9 % of these images as they are; here shifted and mirrored
    result = train_twice(config, tmp_path)
    assert (result.steps, result.test_samples) == (4, 32)


def test_clinc150_with_a_published_encoder(tmp_path):
    data = real_data()
    encoder = data / "weights" / "paraphrase-minilm-l3"
    overrides = ["limit=64", "epochs=1", "evaluation.limit=32", "batch_size=16", "checkpoints.every=2"]
    teacher = [
        f"teacher.model=hf:{encoder}",
        "teacher.weights=null",
        "teacher.untrained=true",
        "teacher.layers=[1, 2, 3]",
    ]
    place = [f"teacher.cache={tmp_path / 'cache'}", "tensorboard=false", "schedule.warmup=1"]
    config = load_config(CONFIGS / "cpu-text.yaml", [*overrides, *teacher, *place, "objective=dto-kd"])
    assert config.objective.settings == {"layer_features": "own-objective"}
    caching.build(config)
    assert caching.verify(tmp_path / "cache", config, sample=4).passes
    result = train_twice(config, tmp_path)
    assert (result.steps, result.test_samples) == (4, 32)


def test_the_papers_text_run_has_1125_iterations_that_cross_epochs():
    real_data()
    config = load_config(CONFIGS / "paper-text.yaml")
    dataset = load_data(config, "train")
    assert len(dataset) == 18_000
    from tpkd.data.batches import Preparation, TrainingBatches

    batches = TrainingBatches(
        dataset,
        Preparation(tokenize=lambda texts: {"input_ids": torch.zeros(len(texts), 1)}),
        seed=config.seed,
        batch_size=config.batch_size,
        num_samples=config.epochs * len(dataset),
    )
    assert len(batches) == 1125
    _, epochs = batches.order.positions(281 * 64, 282 * 64)
    assert sorted(set(epochs.tolist())) == [1, 2]  # 18,000 = 281.25 x 64
