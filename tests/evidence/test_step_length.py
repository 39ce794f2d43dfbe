"""The rates of configs/evidence-step-length.yaml are those that the committed records give."""

import json
from pathlib import Path

import pytest
from tools.step_length import RATE, RUN, SCALED, mean_norm, scaled_rate

from tpkd.config.loading import load_config

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("objective", SCALED)
def test_rates_are_those_of_the_records(objective):
    config = load_config(CONFIGS / "evidence-step-length.yaml", [f"objective={objective}-step"])
    assert (config.objective.name, config.optimizer.learning_rate) == (objective, scaled_rate(objective))


def test_all_else_is_the_first_run():
    again, first = (
        load_config(CONFIGS / f"evidence-{name}.yaml", ["objective=kd", "output=same"])
        for name in ("step-length", "vision")
    )
    free = {"methods", "variants", "study"}
    assert again.model_dump(exclude=free) == first.model_dump(exclude=free)
    assert first.optimizer.learning_rate == RATE


def test_a_rate_is_the_ratio_of_norms(tmp_path):
    for objective, norm in (("kd", 8.0), ("tpkd", 2.0)):
        for seed in (42, 43, 44):
            (tmp_path / f"{objective}-{seed}").mkdir()
            lines = [{"kind": "monitor"}, {"kind": "train", "gradient_norm": norm}]
            (tmp_path / f"{objective}-{seed}" / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert mean_norm("kd", tmp_path) == 8.0
    assert scaled_rate("kd", run=tmp_path) == RATE / 4
    assert RUN.is_dir()
