"""The reference: a page for each public package from its `__all__`, and one for the commands from their help."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

FENCED = re.compile(r"(^ *```.*?^ *```$|^#+ [^\n]*$)", re.M | re.S)
NAME = re.compile(r"(?<!\[)`(tpkd\.[\w.]+)(?:\(\))?`(?!\])")
SOURCE = Path(__file__).resolve().parents[2] / "src"
PACKAGES = (
    *("tpkd.objectives", "tpkd.theory", "tpkd.geometry", "tpkd.parameter_space"),
    *("tpkd.integrations.transformers", "tpkd.integrations.trl"),
    *("tpkd.integrations.timm", "tpkd.integrations.lightning"),
    *("tpkd.training", "tpkd.teacher.cache", "tpkd.data", "tpkd.models.registry", "tpkd.models.weights"),
    "tpkd.student.loading",
    *("tpkd.config.schema", "tpkd.config.loading"),
    *("tpkd.errors", "tpkd.record", "tpkd.diagnosis.record", "tpkd.compare.record", "tpkd.mechanism.record"),
)


def source_of(module: str) -> Path:
    """The file of a module or of a package."""
    path = SOURCE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def public_names(module: str) -> dict[str, str]:
    """Each public name and the module it comes from, in the order of the imports; the file is read, never run.

    A module without `__all__` is imported by itself: its public classes and functions are the names.
    """
    tree = ast.parse(source_of(module).read_text())
    listed = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    if not listed:
        defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        return {name: module for name in defined if not name.startswith("_")}
    names = ast.literal_eval(listed[0])
    # A name that is imported on its first use is imported by type checkers alone, under an `if`.
    top = [inner for node in tree.body for inner in (node.body if isinstance(node, ast.If) else [node])]
    imports = (node for node in top if isinstance(node, ast.ImportFrom))
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}
    return {name: home for name, home in homes.items() if name in names} | {
        name: module for name in names if name not in homes
    }


def summary(module: str) -> str:
    """The docstring of a module."""
    return ast.get_docstring(ast.parse(source_of(module).read_text())) or ""


def package_page(package: str) -> str:
    """Every public name of a package, grouped by the file it comes from."""
    lines = [f"# {package}", "", summary(package)]
    group = ""
    for name, home in public_names(package).items():
        if home not in (group, package):
            group = home
            lines += ["", f"## {home} {{ #{home}-module }}", "", summary(home)]
        lines += ["", f"::: {package}.{name}"]
    return "\n".join(lines) + "\n"


def top_page() -> str:
    """The names that stand at the top of the package, each with a link to where it is described."""
    lines = ["# tpkd", "", summary("tpkd"), "", "The public packages:", ""]
    lines += [f"- [`{package}`]({package}.md): {summary(package).splitlines()[0]}" for package in PACKAGES]
    lines += ["", "These names also stand at the top, as `tpkd.NAME`:", ""]
    lines += [f"- [`{name}`][{home}.{name}]" for name, home in public_names("tpkd").items()]
    return "\n".join(lines) + "\n"


def described() -> dict[str, str]:
    """Every spelling of a public name on a page, and the entry of the reference that describes it."""
    entries = {}
    for package in PACKAGES:
        for name, home in public_names(package).items():
            entry = f"{package}.{name}"
            entries |= {entry: entry, f"{home}.{name}": entry}
    return entries | {f"tpkd.{name}": f"{home}.{name}" for name, home in public_names("tpkd").items()}


def link_names(markdown: str) -> str:
    """Link each public name that is code in a sentence or table to its entry in the reference."""
    entries = described()
    pieces = FENCED.split(markdown)  # every second piece is a block of code or a heading
    return "".join(
        piece if index % 2 else NAME.sub(lambda m: _linked(m, entries), piece) for index, piece in enumerate(pieces)
    )


def _linked(name: re.Match[str], entries: dict[str, str]) -> str:
    return f"[{name[0]}][{entries[name[1]]}]" if name[1] in entries else name[0]


def commands_page() -> str:
    """Every command: what it does, an example, its arguments and options."""
    from tpkd.cli.main import app

    lines = ["# Commands", "", "Exit 0: done. Exit 1: the command ran and a check failed. Exit 2: the input is wrong,"]
    lines += ["said in one line that names the file, key or row."]
    for name, command in commands(get_command(app)):
        lines += ["", f"## {name}", "", (command.help or "").split("Example: ")[0].strip(), ""]
        lines += ["```bash", *examples(command), "```", "", *_parameters(command)]
    return "\n".join(lines) + "\n"


def examples(command: TyperCommand) -> list[str]:
    """The commands that the help of one shows."""
    paragraphs = (command.help or "").split("\n\n")
    found = (part.partition("Example: ")[2] for part in paragraphs)
    return [" ".join(example.split()) for example in found if example]


def commands(command: TyperCommand | TyperGroup, name: str = "tpkd") -> Iterator[tuple[str, TyperCommand]]:
    """Each command that does something, by its full name."""
    if isinstance(command, TyperGroup):
        for verb, inner in command.commands.items():
            yield from commands(inner, f"{name} {verb}")
    else:
        yield name, command


def _parameters(command: TyperCommand) -> list[str]:
    rows = ["| argument or option | meaning |", "|---|---|"]
    for parameter in command.params:
        option = parameter.param_type_name == "option"
        name = ", ".join(parameter.opts) if option else parameter.name.upper()
        note = " Required." if option and parameter.required else ""
        if option and parameter.default not in (None, False, ""):
            note = f" Default: `{parameter.default}`."
        rows.append(f"| `{name}` | {(parameter.help or '').replace('|', chr(92) + '|')}{note} |")
    return [*rows, ""] if command.params else []
