"""Every script of `examples/` runs as it stands; those of timm run in the environment that has it."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ALL = {path.stem for path in EXAMPLES.glob("*.py")}
ACCURACY = r"^accuracy 0\.[789]"
"""Of ten digits; chance is 0.1, and whoever trains at all is far above it."""
PRINTS = {
    "plain_loop": r"^step 240: .*blocked_share .*retention .*\naccuracy 0\.[89]",
    "mixup_loop": r"^step 240: loss .*, weight .*\naccuracy 0\.[89]",
    "temperature_loop": r"(?s)'temperature': 1\.0}: 0 margins.*'temperature': 4\.0}: 0 margins.*accuracy 0\.[89]",
    "cached_teacher": r"^200 rows were computed once .*\naccuracy 0\.[89]",
    "diagnose_two_files": r"blocked on [1-9]\d?\.\d% of 797 images",
    "plain_trl": r"^eval_loss 0\.[1-9]",
    "distill_trl": r"^eval_loss 0\.[1-9]",
    "diagnose_truncated": r"^blocked +<= 0\.\d+ .*\n(.*\n)*transfer_cost +>= ",
}


@pytest.mark.parametrize("name", sorted(name for name in ALL if not name.endswith("_timm")))
def test_it_runs_in_an_empty_directory_and_learns(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("CI", "1")  # then TRL reports nothing of its use
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.search(PRINTS.get(name, ACCURACY), printed, flags=re.MULTILINE), printed[-2000:]


def test_the_readme_names_every_script():
    table = (EXAMPLES / "README.md").read_text()
    named = set(re.findall(r"^\| `(\w+)\.py`", table, flags=re.MULTILINE))
    neighbours = {name.replace("distill_", "plain_") for name in ALL if name.startswith("distill_")}
    assert named == ALL - neighbours
