"""Variants: which settings a run of one has, and which are refused."""

import pytest

from config.minimal import refused
from tpkd.config.loading import load_config
from tpkd.config.variants import VariantConfig

KD_T1 = "variants={kd-t1: {objective: kd, settings: {temperature: 1}}}"


def test_a_variant_is_its_objective_with_settings_of_its_own(file):
    config = load_config(file, [KD_T1, "objective=kd-t1"])
    assert (config.objective.name, config.objective.settings) == ("kd", {"temperature": 1})
    assert config.directory == "runs/kd-t1-42"
    assert load_config(file, [KD_T1, "objective=kd"]).objective.settings == {}


def test_methods_hold_for_variants_and_overrides_win(file):
    methods = "methods={kd: {objective.settings: {kd_weight: 2, temperature: 9}, optimizer.momentum: 0.5}}"
    config = load_config(file, [KD_T1, methods, "objective.name=kd-t1"])
    assert config.objective.settings == {"kd_weight": 2, "temperature": 1}
    assert config.optimizer.momentum == 0.5
    config = load_config(file, [KD_T1, methods, "objective.name=kd-t1", "objective.settings.temperature=3"])
    assert (config.objective.name, config.objective.settings["temperature"]) == ("kd", 3)


def test_a_variant_may_have_another_rate(file):
    slow = "variants={kd-slow: {objective: kd, overrides: {optimizer.learning_rate: 0.01}}}"
    assert load_config(file, [slow, "objective=kd-slow"]).optimizer.learning_rate == 0.01
    assert load_config(file, [slow, "objective=kd"]).optimizer.learning_rate == 0.1


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("{kd-t1: {objective: kd}}", "variants.kd-t1: expected settings or overrides, found neither"),
        ("{kd-t1: {objectiv: kd}}", "variants.kd-t1.objectiv: unknown key, expected one of objective"),
        ("{KD: {objective: kd, settings: {a: 1}}}", "variants: expected names of lower-case words"),
        ("{a: {objective: kd, overrides: {seed: 3}}}", "expected other keys than seed"),
        ("{a: {objective: kd, overrides: {objective.settings: {}}}}", "settings takes those of the objective"),
    ],
)
def test_a_bad_variant_is_refused(file, variant, message):
    assert message in refused(file, [f"variants={variant}"])


def test_a_wrong_value_of_a_variant_names_it(file):
    variant = "variants={fast: {objective: kd, overrides: {optimizer.learning_rate: -1}}}"
    assert "variants.fast: optimizer.learning_rate" in refused(file, [variant, "objective=fast"])


def test_a_title_of_its_own_comes_first():
    assert VariantConfig(objective="kd", settings={"temperature": 1}, title="Soft").title_of("KD") == "Soft"
    assert VariantConfig(objective="kd", overrides={"optimizer.learning_rate": 0.0123456}).title_of("KD") == (
        "KD (rate = 0.0123)"
    )
