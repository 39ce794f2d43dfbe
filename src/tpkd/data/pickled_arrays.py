"""A reader for pickles that hold plain arrays and nothing else: CIFAR is published in that format.

Unpickling runs whatever the file names. This reader walks over the opcodes itself (the standard library only splits
the bytes) and knows no opcode that calls, imports or sets an attribute: it builds numbers, text, bytes, lists and
dicts, and recognises the names with which Python and NumPy write bytes and arrays. All else is refused by its name.
"""

import io
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpkd.errors import InputError
from tpkd.files import read_bounded


@dataclass(frozen=True)
class _Name:
    """A name the file mentions; it stands for itself and is never looked up."""

    name: str


@dataclass
class _DtypeParts:
    code: str
    byte_order: str = "="


@dataclass
class _ArrayParts:
    array: np.ndarray | None = None


MAX_BYTES = 1 << 30
"""CIFAR's largest file has 155 MB."""

_MARK = object()
_LITERALS = {
    *("NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT"),
    *("BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_ENCODE = _Name("_codecs encode")
_BYTES = _Name("__builtin__ bytes")
_NDARRAY = _Name("numpy ndarray")
_DTYPE = _Name("numpy dtype")
_RECONSTRUCT = {_Name("numpy.core.multiarray _reconstruct"), _Name("numpy._core.multiarray _reconstruct")}


def read_pickled_arrays(path: str | Path) -> Any:
    """The numbers, text, bytes, lists, dicts and numeric arrays of a pickle, without running anything in it.

    Protocols 0 to 4 of Python 3 and protocol 2 of Python 2, whose text is read as Latin-1, with old and new NumPy.

    Raises:
        InputError: the file is missing or damaged, or names anything but an array, for example a function to call.

    Example:
        >>> import pickle, tempfile
        >>> path = Path(tempfile.mkdtemp()) / "batch"
        >>> _ = path.write_bytes(pickle.dumps({"data": np.eye(2), "labels": [0, 1]}, protocol=2))
        >>> read_pickled_arrays(path)
        {'data': array([[1., 0.],
               [0., 1.]]), 'labels': [0, 1]}
    """
    content = read_bounded(path, MAX_BYTES)
    try:
        return _Reader().read(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError) as error:
        # Whatever a malformed opcode stream trips over; the reader has no side effects to undo.
        raise InputError(f"{path}: damaged or not a pickle: {error}") from error


class _Reader:
    """The pickle machine: a stack, its marks and a memo, with construction taken out."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def read(self, content: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(io.BytesIO(content)):
            name = opcode.name
            if name == "STOP":
                return _finished(self.stack.pop())
            if name in _LITERALS:
                self.stack.append(_CONSTANTS.get(name, argument))
            elif name in _STEPS:
                _STEPS[name](self, argument)
            elif name not in ("PROTO", "FRAME"):
                raise InputError(f"expected plain arrays, found the pickle opcode {name}, which is refused")
        raise ValueError("no end")

    def pop_to_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise ValueError("no mark")

    def pop_tuple(self, length: int) -> None:
        items = tuple(self.stack[-length:])
        if len(items) < length:
            raise ValueError("too few items for a tuple")
        self.stack[-length:] = [items]

    def push_name(self, name: str) -> None:
        named = _Name(name)
        if named not in {_ENCODE, _BYTES, _NDARRAY, _DTYPE} | _RECONSTRUCT:
            raise InputError(f"expected plain arrays, found {name!r}, which could run code and is refused")
        self.stack.append(named)

    def push_stack_name(self) -> None:
        attribute, module = self.stack.pop(), self.stack.pop()
        self.push_name(f"{module} {attribute}")

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise ValueError(f"expected a list to extend, found {type(target).__name__}")
        target.extend(_finished(item) for item in items)

    def push_dict(self, items: list[Any]) -> None:
        self.stack.append({})
        self.update(items)

    def update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict:
            raise ValueError(f"expected a dict to fill, found {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) not in (str, bytes, int):
                raise ValueError(f"expected text as a key, found {type(key).__name__}")
            target[key] = _finished(value)

    def apply(self) -> None:
        arguments, named = self.stack.pop(), self.stack.pop()
        if named == _ENCODE and type(arguments[0]) is str and arguments[1] == "latin1":
            self.stack.append(arguments[0].encode("latin-1"))
        elif named == _BYTES and arguments == ():
            self.stack.append(b"")
        elif named in _RECONSTRUCT and arguments[0] == _NDARRAY:
            self.stack.append(_ArrayParts())
        elif named == _DTYPE:
            self.stack.append(_DtypeParts(_as_text(arguments[0])))
        else:
            raise InputError(f"expected plain arrays, found a call of {_describe(named)}, which is refused")

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if type(target) is _DtypeParts:
            target.byte_order = _as_text(state[1])
        elif type(target) is _ArrayParts:
            _, shape, dtype, fortran_order, content = state
            target.array = _array(shape, dtype, fortran_order, content)
        else:
            raise InputError(f"expected plain arrays, found a state for {_describe(target)}, which is refused")


def _array(shape: tuple[int, ...], dtype: _DtypeParts, fortran_order: bool, content: str | bytes) -> np.ndarray:
    if dtype.code[:1] not in ("b", "i", "u", "f") or not dtype.code[1:].isdigit():
        raise InputError(f"expected an array of numbers, found dtype {dtype.code!r}")
    byte_order = dtype.byte_order if dtype.byte_order in ("<", ">") else "="
    raw = content.encode("latin-1") if isinstance(content, str) else content
    values = np.frombuffer(raw, np.dtype(byte_order + dtype.code))
    return values.reshape(shape, order="F" if fortran_order else "C")


def _finished(value: Any) -> Any:
    """The value itself, an array in place of its parts; what only describes an array is no value."""
    if type(value) is _ArrayParts and value.array is not None:
        return value.array
    if type(value) in (tuple, _Name, _DtypeParts, _ArrayParts) or value is _MARK:
        raise InputError(f"expected plain arrays, found {_describe(value)} as a value")
    return value


def _as_text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _describe(value: Any) -> str:
    return repr(value.name) if type(value) is _Name else type(value).__name__.strip("_")


def _put(reader: _Reader, index: int | None) -> None:
    reader.memo[len(reader.memo) if index is None else index] = reader.stack[-1]


_STEPS: dict[str, Callable[[_Reader, Any], None]] = {
    "MARK": lambda reader, _: reader.stack.append(_MARK),
    "EMPTY_DICT": lambda reader, _: reader.stack.append({}),
    "EMPTY_LIST": lambda reader, _: reader.stack.append([]),
    "EMPTY_TUPLE": lambda reader, _: reader.stack.append(()),
    "TUPLE": lambda reader, _: reader.stack.append(tuple(reader.pop_to_mark())),
    "TUPLE1": lambda reader, _: reader.pop_tuple(1),
    "TUPLE2": lambda reader, _: reader.pop_tuple(2),
    "TUPLE3": lambda reader, _: reader.pop_tuple(3),
    "LIST": lambda reader, _: reader.stack.append([_finished(item) for item in reader.pop_to_mark()]),
    "DICT": lambda reader, _: reader.push_dict(reader.pop_to_mark()),
    "APPEND": lambda reader, _: reader.extend([reader.stack.pop()]),
    "APPENDS": lambda reader, _: reader.extend(reader.pop_to_mark()),
    "SETITEM": lambda reader, _: reader.update([reader.stack.pop(-2), reader.stack.pop()]),
    "SETITEMS": lambda reader, _: reader.update(reader.pop_to_mark()),
    "PUT": _put,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "MEMOIZE": _put,
    "GET": lambda reader, index: reader.stack.append(reader.memo[index]),
    "BINGET": lambda reader, index: reader.stack.append(reader.memo[index]),
    "LONG_BINGET": lambda reader, index: reader.stack.append(reader.memo[index]),
    "GLOBAL": lambda reader, name: reader.push_name(name),
    "STACK_GLOBAL": lambda reader, _: reader.push_stack_name(),
    "REDUCE": lambda reader, _: reader.apply(),
    "BUILD": lambda reader, _: reader.build(),
}
