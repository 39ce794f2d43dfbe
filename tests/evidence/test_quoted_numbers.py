"""Accuracies that other pages quote are those of results/."""

import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def difference_to_kd(directory):
    """TPKD minus KD, as "+2.41 [+1.40, +3.41]" with hard spaces, and the number of seeds."""
    with (ROOT / "results" / directory / "tables" / "claims.csv").open(newline="") as file:
        (row,) = (row for row in csv.DictReader(file) if row["here"].startswith("TPKD − KD: "))
    number = row["here"].removeprefix("TPKD − KD: ")
    interval = row["interval"].replace(" to ", ", ")
    return f"{number} [{interval}]".replace(" ", "\u00a0"), row["n"]  # not to be broken in a narrow column


@pytest.mark.parametrize("page", ["README.md", "docs/choosing.md"])
@pytest.mark.parametrize(
    ("directory", "data"), [("cpu-vision", "CIFAR-100, ResNet-56"), ("cpu-text", "CLINC150, Mini")]
)
def test_a_difference_is_that_of_the_records(page, directory, data):
    (row,) = (line for line in (ROOT / page).read_text().splitlines() if line.startswith("|") and data in line)
    number, seeds = difference_to_kd(directory)
    assert f"| {number} |" in row
    assert f", {seeds} |" in row
