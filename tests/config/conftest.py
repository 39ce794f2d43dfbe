import pytest

from config.minimal import MINIMAL


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(MINIMAL)
    return path
