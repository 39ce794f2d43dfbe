"""Find the examples of a page and run them from top to bottom, in one namespace and one directory.

The fence alone decides what happens to a block, so that a reader can see it:

- `python` runs; `bash` runs line by line; a `text` block holds exactly what the block above it printed;
- a block whose title is the name of a file is that file, for the blocks below it;
- a `bash` block whose title begins with "Not run" is only checked: its commands, options and configurations must exist;
- a line that ends in `# exit 1` must end with that code.

Anything else is an error: every example on a page is tried.
"""

import os
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import yaml
from typer.core import TyperGroup
from typer.main import get_command

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
FILE_NAME = re.compile(r"[\w./-]+\.[a-z]+")
NOT_RUN = "Not run"
COLUMNS = "96"
"""The width at which commands print, which fits a block on the page."""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its title, its text, and the line it starts in."""

    language: str
    title: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file name under which later blocks find this one, if its title is a file name."""
        return self.title if FILE_NAME.fullmatch(self.title) else None

    @property
    def commands(self) -> list[str]:
        """The lines of a shell block; a backslash joins two."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def find_blocks(markdown: str) -> list[Block]:
    """Every fenced block, in order; blocks inside lists and admonitions are dedented."""
    found = []
    for match in FENCE.finditer(markdown):
        title = re.search(r'title="([^"]*)"', match["info"])
        line = markdown.count("\n", 0, match.start()) + 1
        found.append(Block(match["language"], title[1] if title else "", textwrap.dedent(match["text"]), line))
    return found


def run_page(page: Path, directory: Path) -> Iterator[tuple[Block, str]]:
    """Try the blocks of a page in a directory with `configs/` and `examples/`; yields each with what it printed."""
    for folder in ("configs", "examples"):
        if (ROOT / folder).is_dir() and not (directory / folder).exists():
            (directory / folder).symlink_to(ROOT / folder)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for block in find_blocks(page.read_text()):
        place = f"{page.name}:{block.line}"
        with chdir(directory):
            try:
                printed = _try_block(block, place, namespace, printed)
            except BaseException as error:
                error.add_note(f"in the block at {place}")
                raise
        yield block, printed


def _try_block(block: Block, place: str, namespace: dict[str, Any], printed: str) -> str:
    if block.file:
        Path(block.file).write_text(block.text)
    elif block.language == "python":
        with redirect_stdout(StringIO()) as output:
            exec(compile("\n" * block.line + block.text, place, "exec"), namespace)
        return output.getvalue()
    elif block.language == "bash" and block.title.startswith(NOT_RUN):
        with chdir(ROOT):
            for command in block.commands:
                check_command(command)
    elif block.language == "bash":
        return "".join(run_command(command) for command in block.commands)
    elif block.language == "text":
        shown, real = ([line.rstrip() for line in text.strip("\n").splitlines()] for text in (block.text, printed))
        if shown != real:
            raise AssertionError(f"the page shows\n{block.text}\nand what the block above it prints is\n{printed}")
    elif block.language == "yaml":
        check_settings(yaml.safe_load(block.text))
    else:
        raise AssertionError(f"{place}: nothing is known to try a block of language {block.language!r}")
    return printed


def run_command(command: str) -> str:
    """Run one `tpkd` command in this process and in the current directory; returns what it printed."""
    from tpkd.cli.main import app
    from tpkd.errors import InputError

    expected = re.search(r"# exit (\d)$", command)
    words = shlex.split(command, comments=True)
    if words[:1] != ["tpkd"]:
        check_command(command)
        return ""
    os.environ["COLUMNS"] = COLUMNS
    with redirect_stdout(StringIO()) as output:
        try:
            code = app(words[1:], prog_name="tpkd", standalone_mode=False) or 0
        except InputError as error:  # as `tpkd.cli.main.main` does
            output.write(f"tpkd: {error}\n")
            code = 2
    if code != int(expected[1] if expected else 0):
        raise AssertionError(f"{command} ended with {code}:\n{output.getvalue()}")
    return output.getvalue()


def check_command(command: str) -> None:
    """Check that a command could run: its verbs, options, targets, extras, files and configurations exist."""
    words = shlex.split(command, comments=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    match words:
        case ["tpkd", *arguments] | ["accelerate", "launch", "-m", "tpkd", *arguments]:
            _check_tpkd(arguments)
        case ["torchrun", *options] if "tpkd" in options:
            _check_tpkd(options[options.index("tpkd") + 1 :])
        case ["make", *targets]:
            makefile = (ROOT / "Makefile").read_text()
            wanted = [
                rf"^{name} \?=" if value else rf"^{name}:"
                for name, value, _ in (word.partition("=") for word in targets)
            ]
            missing = [
                word for word, pattern in zip(targets, wanted, strict=True) if not re.search(pattern, makefile, re.M)
            ]
            if missing:
                raise AssertionError(f"no make target {missing}")
        case ["pip", "install", *names]:
            extras = project["optional-dependencies"]
            named = {extra for name in names for part in re.findall(r"\[(.*)\]", name) for extra in part.split(",")}
            if not named <= set(extras):
                raise AssertionError(f"no extra {named - set(extras)}")
        case ["git", "clone", address] if address == project["urls"]["Source"]:
            pass
        case ["python", script, *configurations] if all((ROOT / name).is_file() for name in (script, *configurations)):
            pass
        case ["export", setting] if "=" in setting:
            os.environ.setdefault(*setting.split("=", 1))
        case _:
            raise AssertionError(f"nothing is known to check the command {command!r}")


def _check_tpkd(arguments: list[str]) -> None:
    from tpkd.cli.main import app
    from tpkd.config.loading import is_tokens_config, load_config, load_tokens_config

    command, rest = get_command(app), list(arguments)
    while isinstance(command, TyperGroup):
        command = command.commands[rest.pop(0)]
    given = command.make_context("tpkd", rest).params
    configurations = [word for word in arguments if word.endswith(".yaml")]
    overrides = given.get("overrides") or []
    for configuration in configurations:
        load = load_tokens_config if is_tokens_config(configuration) else load_config
        load(configuration, overrides)


def check_settings(settings: dict[str, Any]) -> None:
    """Check that a piece of a configuration is valid once the required keys are added."""
    from tpkd.config.loading import resolve_config

    rest = {"objective": "tpkd", "optimizer": {"name": "sgd", "learning_rate": 0.1}, "epochs": 1}
    resolve_config(rest | settings)
