"""The grids of the page on reproducing are whole; that its commands could run is seen in test_blocks.py."""

import re
import shlex
from pathlib import Path

import pytest

from tpkd.compare.grid import plan_grid

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reproducing.md").read_text()
COMPARISONS = [line for line in PAGE.splitlines() if line.startswith("tpkd compare ") and " --" not in line]
"""Those that choose neither methods nor seeds."""


@pytest.mark.parametrize("line", COMPARISONS)
def test_a_comparison_is_the_whole_grid(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TPKD_DATA", "/data")
    _, _, file, *overrides = shlex.split(line)
    assert len(plan_grid(file, overrides).cells) == 42


def test_every_scale_has_its_configuration():
    named = re.findall(r"^\| [^|]*\| `([a-z-]+)`", PAGE.split("## Scales")[1], flags=re.MULTILINE)
    assert named == ["demo", "cpu-text", "cpu-vision", "paper-text", "paper-vision"]
    for name in named:
        assert len(plan_grid(ROOT / "configs" / f"{name}.yaml").cells) == 42
