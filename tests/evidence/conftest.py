"""The evidence is tested where it is: in a clone. A source distribution leaves it out for its size."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items):
    if not (ROOT / "PKG-INFO").exists() or (ROOT / "results").exists():
        return  # in a clone, records that are missing are a failure
    skip = pytest.mark.skip(reason="results/ is not part of the source distribution: clone the repository")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(skip)
