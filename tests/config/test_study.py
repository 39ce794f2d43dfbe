"""What the section `study` refuses."""

import pytest

from config.minimal import refused
from tpkd.config.loading import load_config


@pytest.mark.parametrize("splits", ["[]", "[train, train]", "[test, train, test]"])
def test_every_split_is_there_once(file, splits):
    assert "blocking.splits: expected train, test or both, found" in refused(file, [f"study.blocking.splits={splits}"])
    assert load_config(file, ["study.blocking.splits=[test]"]).study.blocking.splits == ("test",)


@pytest.mark.parametrize("name", ["blocking", "exact_head", "certificates"])
def test_every_state_is_there_once(file, name):
    message = refused(file, [f"study.{name}.states=[1, 2, 1]"])
    assert message == f"{file}: study.{name}.states: expected every epoch once, found 1 twice"


def test_head_steps_are_not_longer_than_the_theory_allows(file):
    assert load_config(file, ["study.exact_head.step_size=0.8"]).study.exact_head.step_size == 0.8
    assert "study.exact_head.step_size: " in refused(file, ["study.exact_head.step_size=0.81"])
