"""Every example on every page runs: Python, commands, files and what is shown as their output."""

import re
from pathlib import Path

import pytest
from docs.hooks.blocks import COLUMNS, NOT_RUN, check_command, find_blocks, run_page
from docs.hooks.reference import commands, examples
from typer.main import get_command

from tpkd.cli.main import app
from tpkd.objectives import registry

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
COMMANDS = dict(commands(get_command(app)))
OPTIONS = {name for parameter in get_command(app).params for name in parameter.opts}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """What the pages and the runner set is taken back after each test."""
    monkeypatch.setenv("COLUMNS", COLUMNS)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setenv("TPKD_DATA", "/data")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT / "docs").as_posix())
def test_examples_run(page, tmp_path):
    tried = [block for block, _ in run_page(page, tmp_path)]
    assert len(tried) == page.read_text().count("\n```") // 2, "a fence that is no block, or a block that was not tried"


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md"])
def test_commands_of_other_files_could_run(file, monkeypatch):
    monkeypatch.chdir(ROOT)
    blocks = [block for block in find_blocks((ROOT / file).read_text()) if block.language == ""]
    assert blocks
    for command in (command for block in blocks for command in block.commands):
        check_command(command)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_named_in_sentences_exist(page):
    for words in re.findall(r"`(tpkd [^`]+)`", page.read_text()):
        known = [name for name in COMMANDS if f"{words} ".startswith(f"{name} ") or name.startswith(f"{words} ")]
        assert known or words.removeprefix("tpkd ") in OPTIONS, f"{page.name} speaks of `{words}`"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_every_command_could_run(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    shown = examples(COMMANDS[name])
    assert shown
    for example in shown:
        assert example.startswith(name)
        check_command(example)


def page_of(directory, text):
    page = directory / "page.md"
    page.write_text(text)
    return page


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nassert 1 == 2\n```", "AssertionError"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```", "the page shows"),
        ("```bash\ntpkd report nowhere\n```", "ended with 2"),
        ("```bash\ntpkd methods # exit 1\n```", "ended with 0"),
        ("```bash\nrm -r everything\n```", "nothing is known to check"),
        (f'```bash title="{NOT_RUN}: heavy"\ntpkd train configs/digits.yaml epoch=3\n```', "epoch"),
        (f'```bash title="{NOT_RUN}: heavy"\ntpkd tain configs/digits.yaml\n```', "tain"),
        (f'```bash title="{NOT_RUN}: heavy"\ntpkd demo --put x\n```', "--put"),
        ("```bash\nmake nothing\n```", "no make target"),
        ("```bash\ngit clone https://github.com/tpkd/other\n```", "nothing is known to check"),
        ('```bash\npip install ".[reprot]"\n```', "no extra"),
        ("```yaml\ndata: {name: digits, pad: 3}\n```", "pad"),
        ("```\nwhat is this\n```", "nothing is known to try"),
    ],
)
def test_an_example_that_is_wrong_is_noticed(text, message, tmp_path):
    """The runner itself can fail: each kind of block, broken."""
    with pytest.raises(BaseException) as caught:
        list(run_page(page_of(tmp_path, text), tmp_path))
    assert message in f"{type(caught.value).__name__}: {caught.value}"
    assert "in the block at page.md:" in caught.value.__notes__[-1]


def test_blocks_share_a_namespace_a_directory_and_files(tmp_path):
    text = """
```json title="folder.json"
{"a": 1}
```

- in a list

    ```python
    import json

    a = json.load(open("folder.json"))["a"]
    ```

```python
print(a + 1)
```

```text
2
```
"""
    tried = list(run_page(page_of(tmp_path, text), tmp_path))
    assert [block.language for block, _ in tried] == ["json", "python", "python", "text"]
    assert find_blocks(text)[1].text.startswith("import json")
    assert tried[2][1] == "2\n"
