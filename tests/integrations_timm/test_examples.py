"""What is printed about the timm task runs."""

import doctest
import runpy
from pathlib import Path

import pytest

import tpkd.integrations.timm
import tpkd.integrations.timm_criterion
import tpkd.integrations.timm_targets

EXAMPLES = Path(__file__).parents[2] / "examples"
CHANCE = 0.1


@pytest.mark.parametrize(
    "module", [tpkd.integrations.timm, tpkd.integrations.timm_criterion, tpkd.integrations.timm_targets]
)
def test_the_examples_in_docstrings_run(module):
    found = doctest.testmod(module)
    assert found.failed == 0
    assert found.attempted > 1


def test_the_plain_and_the_distilled_script_learn(capsys):
    plain = runpy.run_path(str(EXAMPLES / "plain_timm.py"))
    distilled = runpy.run_path(str(EXAMPLES / "distill_timm.py"))
    accuracies = [
        float(line.split()[-1]) for line in capsys.readouterr().out.splitlines() if line.startswith("accuracy")
    ]
    assert len(accuracies) == 2
    assert min(accuracies) > 8 * CHANCE
    assert plain["model"] is not distilled["model"]
    assert not any(parameter.requires_grad for parameter in distilled["teacher"].parameters())
