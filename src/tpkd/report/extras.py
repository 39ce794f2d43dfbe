"""The optional packages of a report, asked for by name where they are needed."""

import importlib.util


def missing_extra(*modules: str) -> str | None:
    """One line that says what to install, or None when every module is there.

    Example:
        >>> missing_extra("json") is None
        True
        >>> missing_extra("no_such_module")
        "this needs no_such_module: pip install 'tpkd[report]'"
    """
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return f"this needs {' and '.join(missing)}: pip install 'tpkd[report]'" if missing else None
