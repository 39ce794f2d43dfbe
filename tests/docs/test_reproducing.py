"""The grids of the page on reproducing are whole; that its commands could run is seen in test_blocks.py."""

import re
import shlex
from pathlib import Path

import pytest

from tpkd.compare.grid import plan_grid

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reproducing.md").read_text()
COMPARISONS = [line for line in PAGE.replace(" \\\n", "").splitlines() if line.startswith("tpkd compare ")]
WHOLE = [line for line in COMPARISONS if " --" not in line]


@pytest.mark.parametrize("line", WHOLE)
def test_a_comparison_is_the_whole_grid(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TPKD_DATA", "/data")
    _, _, file, *overrides = shlex.split(line)
    assert len(plan_grid(file, overrides).cells) == 42


@pytest.mark.parametrize("line", [line for line in COMPARISONS if line not in WHOLE])
def test_a_part_of_a_grid_has_the_methods_and_seeds_that_it_names(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TPKD_DATA", "/data")
    words = shlex.split(line)
    chosen = {
        name: words[words.index(f"--{name}") + 1].split(",") for name in ("methods", "seeds") if f"--{name}" in words
    }
    seeds = [int(seed) for seed in chosen["seeds"]]
    grid = plan_grid(words[2], methods=chosen.get("methods"), seeds=seeds)
    assert len(grid.cells) == len(seeds) * len(grid.objectives)
    assert set(chosen.get("methods", grid.objectives)) == set(grid.objectives)


def test_every_scale_has_its_configuration():
    named = re.findall(r"^\| [^|]*\| `([a-z-]+)`", PAGE.split("## Scales")[1], flags=re.MULTILINE)
    assert named == ["demo", "cpu-text", "cpu-vision", "paper-text", "paper-vision"]
    for name in named:
        assert len(plan_grid(ROOT / "configs" / f"{name}.yaml").cells) == 42
