"""YAML as plain data: no aliases, no duplicate keys, bounded nesting and bounded numbers."""

from collections.abc import Hashable
from typing import Any

import yaml

from tpkd.config.section import MAX_DEPTH
from tpkd.errors import InputError, shortened

MAX_NUMBER_LENGTH = 100
"""Maximum length of a number. Python refuses to print integers of 4,300 digits, and `1:1:1:…` takes quadratic time."""

_KINDS = {"bool": "a bool", "int": "an int", "float": "a float", "timestamp": "a timestamp", "binary": "binary data"}


def parse_yaml(source: str, text: str) -> Any:
    """Plain data from YAML.

    Args:
        source: the name of the text in error messages.
        text: one document.

    Raises:
        InputError: one line with the source and, if known, the line number.

    Example:
        >>> parse_yaml("run.yaml", "a: [1, 2]")
        {'a': [1, 2]}
        >>> parse_yaml("run.yaml", "a: 1\\na: 2")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: run.yaml: line 2: duplicate key 'a'
    """
    loader = None
    try:
        loader = _PlainLoader(text)  # the constructor already checks the characters
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise InputError(f"{source}: {line}{shortened((error.problem or 'not YAML').splitlines()[0])}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{source}: expected YAML: {shortened(str(error).splitlines()[0])}") from error
    finally:
        if loader is not None:
            loader.dispose()


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML without its traps; aliases, for example, can expand a small file into a huge one."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise _problem("aliases are not allowed", mark)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise _problem(f"expected at most {MAX_DEPTH} levels, found something nested deeper", mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return super().construct_object(node, deep)
        kind = node.tag.rpartition(":")[2]
        if kind in ("int", "float") and len(node.value) > MAX_NUMBER_LENGTH:
            expected = f"a number of at most {MAX_NUMBER_LENGTH} characters"
            raise _problem(f"expected {expected}, found {len(node.value)}", node.start_mark)
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except Exception as error:
            # Only PyYAML runs here, on one scalar, and raises whatever int, float, a dictionary or a regular
            # expression raises: in every case the scalar is the cause.
            found = f"expected {_KINDS.get(kind, kind)}, found {shortened(node.value, 60)!r}"
            raise _problem(found, node.start_mark) from error

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise _problem(f"expected a plain key, found a {type(key).__name__}", key_node.start_mark)
            if key in seen:
                raise _problem(f"duplicate key {shortened(repr(key), 60)}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _problem(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, mark)
