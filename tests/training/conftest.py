import pytest

from tpkd.objectives import registry
from training.soft import SoftLabels


@pytest.fixture
def soft(monkeypatch):
    """The objective that takes soft labels, known by its name for one test."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr(SoftLabels, "shown", [])
    registry.register(SoftLabels)
    return SoftLabels
