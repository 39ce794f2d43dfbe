"""The configuration of a language model's distillation."""

from pathlib import Path

import pytest

from tpkd.config.loading import is_tokens_config, load_tokens_config, resolve_tokens_config
from tpkd.errors import InputError
from tpkd.tokens.training import make_objective

SHIPPED = Path(__file__).parents[2] / "configs" / "tokens" / "smollm2.yaml"
DATA = {"documents": {"path": "text"}, "teacher": {"model": "hf:model", "cache": "runs/cache"}}


def test_the_shipped_one_is_the_experiment_of_the_page():
    config = load_tokens_config(SHIPPED)
    assert is_tokens_config(SHIPPED)
    assert config.limit * (config.packing.length - 1) >= 200_000
    assert (config.teacher.top_k, config.evaluation.tokens) == (64, 50_000)
    assert len(config.student.layers) * 3 == 30
    for name in ("ce", "kd", "tpkd", "tpkd-t4"):
        chosen = load_tokens_config(SHIPPED, [f"name={name}", "seed=43"])
        make_objective(chosen)
        assert chosen.directory == f"runs/tokens/{name}-43"
        assert (chosen.steps, chosen.batch_size) == (config.steps, config.batch_size)  # equal tokens
    settings = load_tokens_config(SHIPPED, ["name=tpkd-t4"]).objective.settings
    assert settings == {"beta": 1.0, "temperature": 4.0}


def test_other_configurations_are_told_apart():
    assert not is_tokens_config(SHIPPED.parents[1] / "digits.yaml")


def test_overrides_win_over_methods():
    data = DATA | {"methods": {"warm": {"objective": "tpkd", "objective.settings": {"temperature": 4.0}, "steps": 5}}}
    config = resolve_tokens_config(data, ["name=warm", "steps=7"])
    assert (config.steps, config.objective.settings, config.run_name) == (7, {"temperature": 4.0}, "warm")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("pakcing.length=3", r"pakcing: unknown key, .* did you mean packing\?"),
        ("packing.lenght=3", r"packing\.lenght: unknown key, expected one of length, separator; did you mean length\?"),
        ("packing.length=1", r"packing\.length: "),
        ("documents.begin='('", r"documents\.begin: expected a regular expression, found '\('"),
        ("teacher.top_p=1.5", r"teacher\.top_p: "),
        ("name=x", r"name: expected one of a, found 'x'"),
    ],
)
def test_mistakes_are_named(override, message):
    with pytest.raises(InputError, match=message):
        resolve_tokens_config(DATA | {"methods": {"a": {}}}, [override])
