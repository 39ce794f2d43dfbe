"""What the page on reproducing tells people to run exists, and its configurations are read with its overrides."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from tpkd.cli.main import app
from tpkd.config import load_config, resolve_config
from tpkd.studies.grid import plan_grid

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reproducing.md").read_text()
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL) for line in block.splitlines()]
TPKD = [line for line in COMMANDS if line.startswith("tpkd ")]


NAMED = sorted(set(re.findall(r"(?:^|`|-m )tpkd ([a-z]+) ?([a-z-]*)", PAGE, flags=re.MULTILINE)))


@pytest.mark.parametrize(("verb", "second"), NAMED)
def test_named_verbs_exist(verb, second):
    command = get_command(app).commands[verb]
    assert second in getattr(command, "commands", {second})


@pytest.mark.parametrize("line", TPKD)
def test_configurations_are_read_with_their_overrides(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TPKD_DATA", "/data")
    words = shlex.split(line)
    files, overrides = [word for word in words if word.endswith(".yaml")], [word for word in words if "=" in word]
    for file in files:
        load_config(file, overrides)
        if "compare" in words:
            assert len(plan_grid(file, overrides).cells) == 42


def test_every_scale_has_its_configuration():
    named = re.findall(r"^\| [^|]*\| `([a-z-]+)`", PAGE.split("## Scales")[1], flags=re.MULTILINE)
    assert named == ["demo", "cpu-text", "cpu-vision", "paper-text", "paper-vision"]
    for name in named:
        assert len(plan_grid(ROOT / "configs" / f"{name}.yaml").cells) == 42


def test_the_example_for_own_data_is_a_configuration():
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    rest = {"objective": "tpkd", "optimizer": {"name": "sgd", "learning_rate": 0.1}, "epochs": 1}
    config = resolve_config(yaml.safe_load(block) | rest)
    assert config.data.name == "folder:photos"
