"""The panels name what a run really writes."""

import json
from pathlib import Path

import pytest

from tpkd.training.panels import PANELS


def test_names_titles_and_tags_are_unique():
    for values in (
        [panel.name for panel in PANELS],
        [panel.title for panel in PANELS],
        [panel.tag for panel in PANELS],
    ):
        assert len(set(values)) == len(values)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.name)
def test_a_unit_is_one_that_pages_can_write(panel):
    assert panel.unit in ("nats", "share")
    assert panel.tag == f"{panel.kind}/{panel.key}"


def test_a_recorded_run_has_what_the_panels_show():
    metrics = Path(__file__).parents[2] / "results" / "cpu-vision" / "tpkd-42" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    written = {f"{line['kind']}/{key}" for line in lines for key in line}
    assert {panel.tag for panel in PANELS} - written == {"validation/accuracy"}  # it had no validation part
