import pytest

from mechanism.ce_run import train_runs


@pytest.fixture(scope="session")
def ce_run(tmp_path_factory):
    return train_runs(tmp_path_factory.mktemp("mechanism"))
