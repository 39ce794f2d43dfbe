"""From a YAML file and overrides to a checked configuration; every mistake is one line that names file and key."""

import copy
import os
import re
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from torch import OutOfMemoryError

from tpkd.config.plain_yaml import parse_yaml
from tpkd.config.schema import RunConfig
from tpkd.config.section import DATA_PLACEHOLDER, MAX_DEPTH
from tpkd.config.tokens import TOKENS_KEY, TokensConfig
from tpkd.errors import InputError, did_you_mean, reason, shortened
from tpkd.files import check_path, read_text

Checked = TypeVar("Checked", bound=BaseModel)

MAX_CONFIG_BYTES = 1 << 20
PER_METHOD = ("methods", "variants")
"""Sections that are part of the configuration of each method once that is resolved."""
_UNKNOWN = ("extra_forbidden", "invalid_key")
_EXPECTED = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "keys and values"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
}
"""Kinds of data, by the type of pydantic's error where something else was found."""


class ConfigError(InputError):
    """A value of the configuration does not work; the message starts with its key."""


@contextmanager
def keyed(key: str) -> Iterator[None]:
    """Prefix errors with the configuration key that caused them.

    User errors are a ValueError, or running out of memory for the sizes under that key. Anything else is a bug and
    keeps its traceback, unless the caller knows better and turns it into a ValueError.

    Example:
        >>> with keyed("student.weights"):
        ...     raise InputError("net.pt: expected a .safetensors file")
        Traceback (most recent call last):
            ...
        tpkd.config.loading.ConfigError: student.weights: net.pt: expected a .safetensors file
    """
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from error
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise ConfigError(f"{key}: not enough memory: {shortened(reason(error))}") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means out of memory; on a CPU, torch has no exception type for it.

    Example:
        >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes do not fit"))
        (True, False)
    """
    return isinstance(error, MemoryError | OutOfMemoryError) or "can't allocate memory" in str(error)


Override: TypeAlias = str | tuple[str, Any]
"""`key=value` as typed, with a YAML value; or a dotted key and a Python value, which is used as it is: a path may
contain characters that mean something in YAML."""


def load_config(path: str | Path, overrides: Sequence[Override] = (), *, methods: bool = True) -> RunConfig:
    """Read a run's configuration.

    The section `methods` can override settings for the chosen objective, `variants` gives names to an objective with
    settings of its own, and overrides take precedence over all. The
    order of overrides does not matter, except that the last wins if a key is given twice: a section is set before the
    keys in it.

    Args:
        path: a YAML file.
        overrides: `key=value` with dotted keys, such as `optimizer.learning_rate=0.1`, where values are YAML; or pairs
            of a key and a value that is used as it is, such as `("output", "runs/x #2")`.
        methods: whether to apply `methods` and `variants`; without them, the settings that all objectives share.

    Raises:
        InputError: one line that names the file, the key, what was expected and what was found.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "run.yaml"
        >>> _ = path.write_text(
        ...     "output: runs/{objective}\\ndata: {name: digits}\\nstudent: {model: 'builtin:mlp'}\\nobjective: ce\\n"
        ...     "optimizer: {name: sgd, learning_rate: 0.1}\\nepochs: 5\\n"
        ... )
        >>> config = load_config(path, ["epochs=2", "optimizer.momentum=0"])
        >>> config.epochs, config.optimizer.momentum, config.directory
        (2, 0.0, 'runs/ce')
    """
    return resolve_config(_read(path), overrides, source=str(path), methods=methods)


def _read(path: str | Path) -> dict[str, Any]:
    data = parse_yaml(str(path), read_text(path, MAX_CONFIG_BYTES))
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected keys and values, found {type(data).__name__}")
    return data


def is_tokens_config(path: str | Path) -> bool:
    """Whether a file configures the distillation of a language model, not of a classifier."""
    return TOKENS_KEY in _read(path)


def load_tokens_config(path: str | Path, overrides: Sequence[Override] = ()) -> TokensConfig:
    """Read the configuration of a language model's distillation; overrides as in `load_config`.

    The section `methods` has settings for runs by name, and `name` chooses one of them; overrides take precedence.

    Raises:
        InputError: one line that names the file, the key, what was expected and what was found.
    """
    return resolve_tokens_config(_read(path), overrides, source=str(path))


def resolve_tokens_config(
    data: dict[str, Any], overrides: Sequence[Override] = (), *, source: str = "config"
) -> TokensConfig:
    """The configuration of a language model's distillation from plain data.

    Example:
        >>> data = {"documents": {"path": "text"}, "teacher": {"model": "hf:model", "cache": "runs/cache"}}
        >>> data |= {"methods": {"warm": {"objective": "tpkd", "objective.settings": {"temperature": 4.0}}}}
        >>> resolve_tokens_config(data, ["name=warm"]).objective.settings
        {'temperature': 4.0}
    """
    pairs = [_split_override(override) for override in overrides]
    plain = copy.deepcopy(data)
    _set_all(plain, pairs)
    config = _validate(plain, source, TokensConfig)
    if config.name is None or not config.methods:
        return config
    _set_all(plain, list(config.methods[config.name].items()))
    _set_all(plain, pairs)
    return _validate(plain, f"{source}: methods.{config.name}", TokensConfig)


def resolve_config(
    data: dict[str, Any], overrides: Sequence[Override] = (), *, source: str = "config", methods: bool = True
) -> RunConfig:
    """A configuration from plain data; `source` is its name in error messages.

    An override that shortens `epochs` drops the snapshots that are no longer reached; a run whose seed is not
    among `snapshot_seeds` has none.
    """
    pairs = [_split_override(override) for override in overrides]
    plain = copy.deepcopy(data)
    _set_all(plain, pairs)
    _leave_out_late_snapshots(plain, pairs)
    config = _validate(plain, source, RunConfig)
    name = config.objective.name
    variant = config.variants.get(name)
    chosen = config.methods.get(variant.objective if variant else name, {})
    if not methods or not (chosen or variant):
        return _for_seed(config)
    # Only now is the objective known. The overrides are applied again, because they take precedence; a bare name has
    # already been applied, and would erase the settings.
    again = [(key, value) for key, value in pairs if key != "objective" or isinstance(value, dict)]
    _set_all(plain, list(chosen.items()))
    if variant is not None:
        _set_all(plain, variant.assignments)
    _set_all(plain, again)
    if variant is not None:
        _set_all(plain, [("objective.name", variant.objective), ("objective.variant", name)])
    _leave_out_late_snapshots(plain, pairs)
    section = "variants" if variant else "methods"
    return _for_seed(_validate(plain, f"{source}: {section}.{name}", RunConfig))


def _for_seed(config: RunConfig) -> RunConfig:
    """The configuration as its seed makes it: the seeds that follow it, and no snapshots where it keeps none."""
    changes: dict[str, Any] = {}
    for name in config.by_seed:
        section = getattr(config, name)
        if "seed" in section.model_fields_set and section.seed != config.seed:
            raise InputError(f"{name}.seed: expected none beside by_seed: [{name}], found {section.seed}")
        changes[name] = section.model_copy(update={"seed": config.seed})
    if config.snapshot_seeds and config.seed not in config.snapshot_seeds:
        changes["snapshots"] = ()
    return config.model_copy(update=changes) if changes else config


def method_settings(config: RunConfig, objective: str) -> dict[str, Any]:
    """The settings of an objective in a configuration: its own, or for another objective those under `methods`.

    Example:
        >>> run = {"output": "runs/a", "data": {"name": "digits"}, "student": {"model": "builtin:mlp"}, "epochs": 5}
        >>> run |= {"objective": "ce", "optimizer": {"name": "sgd", "learning_rate": 0.1}}
        >>> config = resolve_config(run | {"methods": {"tpkd": {"objective.settings": {"beta": 1.0}}}})
        >>> method_settings(config, "tpkd"), method_settings(config, "ce")
        ({'beta': 1.0}, {})
    """
    if objective == config.objective.name:
        return config.objective.settings
    return resolve_config({**config.model_dump(mode="json"), "objective": objective}).objective.settings


def _leave_out_late_snapshots(data: dict[str, Any], overrides: Sequence[tuple[str, Any]]) -> None:
    keys, epochs, snapshots = [key for key, _ in overrides], data.get("epochs"), data.get("snapshots")
    if "epochs" in keys and "snapshots" not in keys and isinstance(epochs, int) and isinstance(snapshots, list):
        data["snapshots"] = [epoch for epoch in snapshots if not isinstance(epoch, int) or epoch <= epochs]


def _split_override(override: Override) -> tuple[str, Any]:
    if isinstance(override, tuple):
        return override
    key, equals, text = override.partition("=")
    said = f"override {shortened(override)!r}"
    if not equals or not key.strip():
        raise InputError(f"{said}: expected key=value, such as epochs=5")
    if key.count(".") > MAX_DEPTH:
        raise InputError(f"{said}: expected at most {MAX_DEPTH} sections in a key, found {key.count('.')}")
    return key.strip(), parse_yaml(said, text)


def _set_all(data: dict[str, Any], pairs: Sequence[tuple[str, Any]]) -> None:
    # Sections before the keys in them: set later, a section would silently undo the settings of its keys.
    for key, value in sorted(pairs, key=lambda pair: pair[0].count(".")):
        _set(data, key, value)


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    place: Any = data
    for section in sections:
        name = _place_in(place, key, section)
        inner = place[name] if isinstance(place, list) else place.get(name)
        if section == "objective" and isinstance(inner, str):
            inner = {"name": inner}
        place[name] = inner = inner if isinstance(inner, dict | list) else {}
        place = inner
    place[_place_in(place, key, last)] = copy.deepcopy(value)


def _place_in(container: dict[str, Any] | list[Any], key: str, part: str) -> Any:
    """Where a part of a dotted key leads: a name of a section, or the number of an entry in a list."""
    if not isinstance(container, list):
        return part
    if part not in map(str, range(len(container))):
        entries = f"an entry from 0 to {len(container) - 1}" if container else "a list with entries"
        raise InputError(f"override {shortened(key)!r}: expected {entries}, found {shortened(part)!r}")
    return int(part)


def _validate(data: dict[str, Any], source: str, kind: type[Checked]) -> Checked:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        problems = [_describe(problem, kind) for problem in sorted(error.errors(include_url=False), key=_order)]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InputError(f"{source}: {problems[0]}{more}") from error


def _order(problem: Any) -> tuple[bool, bool]:
    """Unknown keys first, because a misspelt key is also a missing one; last, names where no name was given."""
    unnamed = problem["type"] == "literal_error" and not isinstance(problem["input"], str)
    return problem["type"] not in _UNKNOWN, unnamed


def _describe(problem: Any, root: type[BaseModel]) -> str:
    place = [str(part) for part in problem["loc"]]
    key = shortened(".".join(_without_tags(place)))
    if problem["type"] == "extra_forbidden":
        known = _known_keys(place[:-1], root)
        return f"{key}: unknown key, expected one of {', '.join(known)}{did_you_mean(place[-1], known)}"
    if problem["type"] == "missing":
        return f"{key}: missing"
    if problem["type"] == "union_tag_not_found":
        return f"{key}.name: missing, expected one of {', '.join(_known_names(place, root))}"
    if problem["type"] == "union_tag_invalid":
        return _wrong_name(f"{key}.name", problem["input"]["name"], _known_names(place, root))
    if problem["type"] == "literal_error":
        return _wrong_name(key, problem["input"], re.findall(r"'([^']*)'", problem["ctx"]["expected"]))
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{key}: {message}" if key else message
    expected = f"expected {_EXPECTED[problem['type']]}" if problem["type"] in _EXPECTED else message
    return f"{key}: {expected}, found {shortened(repr(problem['input']), 60)}"


def _wrong_name(key: str, found: Any, known: Sequence[str]) -> str:
    hint = did_you_mean(found, known) if isinstance(found, str) else ""
    expected = f"one of {', '.join(known)}" if len(known) > 1 else known[0]
    return f"{key}: expected {expected}, found {shortened(repr(found), 60)}{hint}"


def _section_types(place: Sequence[str], root: type[BaseModel]) -> list[type[BaseModel]]:
    """The section types possible at a place in the file, including those in unions and optionals."""
    sections: list[Any] = [root]
    for part in (part for part in place if not part.isdigit()):  # an entry of a list is what the list has
        following = [kind.model_fields[part].annotation for kind in sections if part in kind.model_fields]
        tagged = [
            kind for kind in sections if kind.model_fields.get("name") and kind.model_fields["name"].default == part
        ]
        # A part that is neither a key nor a kind is a name that the user chose, of an entry in a mapping of sections.
        sections = [kind for hint in following for kind in _models(hint)] if following else tagged or sections
    return sections


def _models(hint: Any) -> list[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return [hint]
    return [kind for part in typing.get_args(hint) for kind in _models(part)]


def _known_keys(place: Sequence[str], root: type[BaseModel]) -> list[str]:
    return sorted({name for kind in _section_types(place, root) for name in kind.model_fields})


def _known_names(place: Sequence[str], root: type[BaseModel]) -> list[str]:
    """The names of the kinds of section that are possible at a place."""
    return [kind.model_fields["name"].default for kind in _section_types(place, root)]


def _without_tags(place: Sequence[str]) -> list[str]:
    """A place as it is written in the file: pydantic adds the kind of optimiser, schedule or value that it tried."""
    tags = ("optimizer", "schedule")
    written = [part for position, part in enumerate(place) if position != 1 or place[0] not in tags]
    return [part for part in written if not part.startswith(("literal[", "dict["))]


def config_yaml(config: RunConfig | TokensConfig) -> str:
    """The whole configuration as YAML, defaults included, so that a run is reproducible from its directory.

    `methods` and `variants` have been applied and are dropped: on reading, they would take precedence over overrides.

    Example:
        >>> data = {"name": "digits"}, {"model": "builtin:mlp"}, {"name": "sgd", "learning_rate": 0.1}
        >>> keys = "data", "student", "optimizer"
        >>> config = resolve_config(dict(zip(keys, data)) | {"output": "runs/a", "objective": "ce", "epochs": 1})
        >>> resolve_config(yaml.safe_load(config_yaml(config))) == config
        True
    """
    plain = config.model_dump(mode="json", exclude=set(PER_METHOD))
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120)
    return text


def expand_data(text: str) -> str:
    """Expand `$TPKD_DATA` in a path.

    Example:
        >>> expand_data("runs/teacher/student.safetensors")
        'runs/teacher/student.safetensors'
    """
    if DATA_PLACEHOLDER not in text:
        return text
    root = os.environ.get(DATA_PLACEHOLDER[1:])
    if not root:
        raise InputError(f"{text}: expected the variable {DATA_PLACEHOLDER[1:]} to name the folder of the data")
    return text.replace(DATA_PLACEHOLDER, check_path(root))
