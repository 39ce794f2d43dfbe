"""The section `schedule`: steps or shares, epochs or shares, and what is neither."""

import pytest

from config.minimal import refused
from tpkd.config.loading import config_yaml, load_config, resolve_config
from tpkd.config.plain_yaml import parse_yaml

NAMES = ("constant", "linear", "cosine", "step", "warmup-linear")


def override(name, settings):
    milestones = "milestones: [0.5], " if name == "step" else ""
    return f"schedule={{name: {name}, {milestones}{settings}}}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("text", "value"), [("0", 0), ("112", 112), ("0.1", 0.1), ("0.0", 0.0), ("1e-2", 0.01)])
def test_a_warm_up_is_steps_or_a_share(file, tmp_path, name, text, value):
    config = load_config(file, [override(name, f"warmup: {text}")])
    assert (config.schedule.warmup, type(config.schedule.warmup)) == (value, type(value))
    again = resolve_config(parse_yaml("again", config_yaml(config)))
    assert type(again.schedule.warmup) is type(value)
    assert again == config


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["1.0", "1.5", "-1", "-0.1", "true", "ten", "10.0", "[1]", "1000000001", ".nan"])
def test_anything_else_is_refused_in_a_sentence(file, name, text):
    expected = (
        "schedule.warmup: expected steps (a whole number) or a share of all steps from 0 up to, but not including, 1"
    )
    assert f"{expected}, found " in refused(file, [override(name, f"warmup: {text}")])


def test_milestones_are_epochs_or_shares(file):
    config = load_config(file, ["schedule={name: step, milestones: [2, 0.75], warmup: 3}"])
    assert (config.schedule.milestones, config.schedule.factor) == ((2, 0.75), 0.1)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ("", "schedule.milestones: missing"),
        ("milestones: []", "schedule.milestones: Tuple should have at least 1 item"),
        (
            "milestones: [1.5]",
            "schedule.milestones.0: expected an epoch (a whole number from 1) or a share of all steps ",
        ),
        ("milestones: [0]", "schedule.milestones.0: expected an epoch"),
        ("milestones: [1, 1]", "schedule.milestones: expected every milestone once, found 1 twice"),
        ("milestones: [2, 5]", "schedule.milestones: expected epochs below 5, found 5; shares such as 0.5 move with"),
        ("milestones: [1], factor: 1", "schedule.factor: Input should be less than 1, found 1"),
        ("milestones: 3", "schedule.milestones: expected a list, found 3"),
    ],
)
def test_milestones_that_are_not(file, settings, part):
    assert part in refused(file, [f"schedule={{name: step, {settings}}}"])


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{name: cosin}", f"schedule.name: expected one of {', '.join(NAMES)}, found 'cosin'; did you mean cosine?"),
        ("{warmup: 3}", f"schedule.name: missing, expected one of {', '.join(NAMES)}"),
        (
            "{name: linear, warmpu: 3}",
            "schedule.warmpu: unknown key, expected one of name, warmup; did you mean warmup?",
        ),
        ("{name: cosine, final: 2}", "schedule.final: Input should be less than or equal to 1, found 2"),
        ("{name: warmup-linear}", "schedule.warmup: missing"),
        ("cosine", "schedule: expected keys and values, found 'cosine'"),
    ],
)
def test_mistakes_are_named(file, text, part):
    assert part in refused(file, [f"schedule={text}"])
