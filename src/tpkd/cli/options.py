"""Shared by several commands: arguments, reading a configuration, and checks of optional packages."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpkd.errors import InputError, did_you_mean, extra

if TYPE_CHECKING:
    from tpkd.config.loading import Override
    from tpkd.config.schema import RunConfig
    from tpkd.config.tokens import TokensConfig
    from tpkd.diagnosis.inputs import Form

Overrides = Annotated[list[str] | None, typer.Argument(help="key=value, dotted keys.", show_default=False)]


def read_config(path: Path, overrides: "Sequence[Override] | None") -> "RunConfig":
    """Load the configuration of a command; its libraries are imported only now."""
    with extra("train"):
        from tpkd.config.loading import load_config
    return load_config(path, overrides or ())


def reads_tokens(path: Path) -> bool:
    """Whether a configuration is one of a language model."""
    with extra("train"):
        from tpkd.config.loading import is_tokens_config
    return is_tokens_config(path)


def read_tokens_config(path: Path, overrides: "Sequence[Override] | None") -> "TokensConfig":
    """Load the configuration of a language model; its libraries are imported only now."""
    with extra("train"):
        from tpkd.config.loading import load_tokens_config
    return load_tokens_config(path, overrides or ())


@contextmanager
def config_errors(path: Path) -> Iterator[None]:
    """Prefix errors about a configuration value with the file name."""
    with extra("train"):
        from tpkd.config.loading import ConfigError
    try:
        yield
    except ConfigError as error:
        raise InputError(f"{path}: {error}") from error


def need_report() -> None:
    """Check that the packages for pages are installed, before the work rather than after it."""
    with extra("report"):
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401


def choose_form(*, probabilities: bool, log_probabilities: bool) -> "Form":
    """What all files of outputs hold.

    Example:
        >>> choose_form(probabilities=False, log_probabilities=False)
        'logits'
    """
    if probabilities and log_probabilities:
        raise InputError("--probabilities: expected one form of all files, found --log-probabilities beside it")
    return "probabilities" if probabilities else "log-probabilities" if log_probabilities else "logits"


def split(text: str) -> list[str]:
    """The items of a comma-separated list.

    Example:
        >>> split("ce, kd,")
        ['ce', 'kd']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def whole_numbers(option: str, text: str) -> list[int]:
    """The integers of a comma-separated list.

    Example:
        >>> whole_numbers("--seeds", "42,43")
        [42, 43]
    """
    try:
        return [int(part) for part in split(text)]
    except ValueError:
        raise InputError(f"{option}: expected comma-separated integers such as 42,43,44, found {text!r}") from None


def check_name(option: str, value: str | None, known: Iterable[str]) -> None:
    """Refuse an option value that is not in `known`."""
    if value is not None and value not in known:
        raise InputError(f"{option} {value}: expected one of {', '.join(known)}{did_you_mean(value, known)}")
