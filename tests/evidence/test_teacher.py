"""The committed text teacher is one network: the one that was trained, cached, and asked about the test split."""

import json
from pathlib import Path

import numpy as np
import pytest

from tpkd.teacher.cache.read import open_cache

TEXT = Path(__file__).parents[2] / "results" / "cpu-text"


@pytest.fixture(scope="module")
def trained() -> dict:
    """What `tpkd train configs/cpu-text-teacher.yaml` said at its end."""
    return json.loads((TEXT / "teacher-result.json").read_text())


def test_the_cache_is_of_the_network_and_the_data_it_was_trained_on(trained):
    recipe = open_cache(TEXT / "teacher-cache").manifest.recipe
    assert recipe.model_fingerprint == trained["student_fingerprint"]
    assert recipe.dataset_fingerprint == trained["data_fingerprint"]


def test_it_is_as_sure_of_test_samples_as_of_those_it_learned():
    """A head that was not the trained one once made it unsure of the training samples alone."""
    cache = open_cache(TEXT / "teacher-cache")
    learned = cache.read(np.arange(0, 18_000, 40), np.zeros(450, dtype=int)).float().numpy()
    asked = np.load(TEXT / "teacher-test-logits.npy").astype(np.float32)
    assert np.median(learned.max(-1)) == pytest.approx(np.median(asked.max(-1)), rel=0.1)
