"""The key `tracking`, and the older one that it replaces."""

from pathlib import Path

import pytest

from config.minimal import refused
from tpkd.config.loading import config_yaml, load_config
from tpkd.config.tracking import TRACKERS, translate_tensorboard

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(
    ("overrides", "tracking"),
    [
        ([], None),
        (["tracking=[]"], ()),
        (["tracking=[wandb, tensorboard]"], ("wandb", "tensorboard")),
        (["tensorboard=true"], ("tensorboard",)),
        (["tensorboard=false"], ()),
        (["tensorboard=false", "tracking="], ()),
    ],
)
def test_what_is_tracked(file, overrides, tracking):
    config = load_config(file, overrides)
    assert config.tracking == tracking
    assert "tensorboard:" not in config_yaml(config)


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["tracking=[wanb]"], f"tracking.0: expected one of {', '.join(TRACKERS)}, found 'wanb'; did you mean wandb?"),
        (["tracking=wandb"], "tracking: expected a list, found 'wandb'"),
        (["tracking=[mlflow, mlflow]"], "tracking: expected every tracker once, found mlflow 2 times"),
        (["tensorboard=true", "tracking=[wandb]"], "tensorboard: expected none beside tracking, found true"),
        (["tensorboard=1"], "tensorboard: Input should be a valid boolean, found 1"),
        (["trackng=[]"], "did you mean tracking?"),
    ],
)
def test_mistakes_are_named(file, overrides, part):
    assert part in refused(file, overrides)


def test_the_given_data_are_left_alone():
    data = {"tensorboard": True}
    assert translate_tensorboard(data) == {"tracking": ["tensorboard"]}
    assert data == {"tensorboard": True}


def test_configurations_of_earlier_releases_open():
    paths = sorted(RESULTS.glob("*/**/config.yaml"))
    assert any("tensorboard: false" in path.read_text() for path in paths)
    for path in paths:
        assert load_config(path).tracking == ()
