"""A reader for pickles that hold plain arrays and nothing else: CIFAR is published in that format.

Unpickling runs whatever the file names. This reader is the standard library's pure-Python unpickler with its
dangerous parts replaced: names in the file are never imported, only the names with which Python and NumPy write bytes
and arrays can be called, no attribute is ever set, and opcodes that plain arrays do not need are refused. The C
implementation would allocate 32 GB for a memo index of 2^31.
"""

import io
import pickle
import pickletools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpkd.errors import InputError
from tpkd.files import read_bounded

MAX_BYTES = 1 << 30
"""CIFAR's largest file has 155 MB."""

_OPCODES = {
    *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2"),
    *("LONG", "LONG1", "FLOAT", "BINFLOAT", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE"),
    *("SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "EMPTY_DICT", "EMPTY_LIST"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "DICT", "APPEND", "APPENDS", "SETITEM"),
    *("SETITEMS", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET", "GLOBAL"),
    *("STACK_GLOBAL", "REDUCE", "BUILD"),
}
_KEYS = {"SETITEM": slice(-2, -1), "SETITEMS": slice(None, None, 2), "DICT": slice(None, None, 2)}
"""Positions on the stack of the keys that an opcode stores."""
_DAMAGE = (
    *(ValueError, LookupError, TypeError, ArithmeticError, AttributeError),
    *(EOFError, pickle.UnpicklingError, struct.error),
)
"""What a malformed opcode stream can raise; there are no side effects to undo."""
_NDARRAY = "numpy ndarray"
_NAMES = {
    *("_codecs encode", "__builtin__ bytes", "numpy dtype", _NDARRAY),
    *("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"),
}


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
        return _finished(_Unpickler(io.BytesIO(content), encoding="latin-1").load())
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except _DAMAGE as error:
        raise InputError(f"{path}: damaged or not a pickle: {str(error) or 'no end'}") from error


@dataclass
class _Dtype:
    """A dtype as the file describes it."""

    code: str | bytes
    byte_order: str | bytes = "="

    def set_state(self, state: Any) -> None:
        self.byte_order = state[1]

    def dtype(self) -> np.dtype[Any]:
        code, byte_order = _as_text(self.code), _as_text(self.byte_order)
        if code[:1] not in ("b", "i", "u", "f") or not code[1:].isdigit():
            raise InputError(f"expected an array of numbers, found dtype {code!r}")
        return np.dtype((byte_order if byte_order in ("<", ">") else "=") + code)


@dataclass(eq=False)
class _Array:
    """An array; None until the file has supplied its values."""

    array: np.ndarray | None = None

    def set_state(self, state: Any) -> None:
        _, shape, dtype, fortran_order, content = state
        raw = content.encode("latin-1") if isinstance(content, str) else content
        self.array = np.frombuffer(raw, dtype.dtype()).reshape(shape, order="F" if fortran_order else "C")


@dataclass(frozen=True)
class _Name:
    """A name in the file; calling it does what Python and NumPy use it for in a pickle, or is refused."""

    name: str

    def __call__(self, *arguments: Any) -> Any:
        match self.name, *arguments:
            case "_codecs encode", str() as text, "latin1":
                return text.encode("latin-1")
            case ("__builtin__ bytes",):
                return b""
            case "numpy dtype", str() | bytes() as code, *_:
                return _Dtype(code)
            case name, _Name(inner), *_ if name.endswith(" _reconstruct") and inner == _NDARRAY:
                return _Array()
        raise InputError(f"expected plain arrays, found a call of {self.name!r}, which is refused")


def _as_text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _finished(value: Any) -> Any:
    """The value with its arrays in place of their parts; a leftover description of an array is refused."""
    pending: list[Any] = [[value]]
    (whole,), seen = pending, {id(pending[0])}
    while pending:
        container = pending.pop()
        for key, item in list(container.items() if type(container) is dict else enumerate(container)):
            if type(item) in (list, dict):
                if id(item) not in seen:
                    seen.add(id(item))
                    pending.append(item)
            elif type(item) is _Array and item.array is not None:
                container[key] = item.array
            elif type(item) not in (str, bytes, int, float, bool, type(None)):
                raise InputError(f"expected plain arrays, found {_describe(item)} as a value")
    return whole[0]


def _describe(value: Any) -> str:
    return repr(value.name) if type(value) is _Name else type(value).__name__.strip("_")


def _guarded(opcode: pickletools.OpcodeInfo) -> Callable[[Any], None]:
    """The unpickler's step for an opcode, after our checks."""

    def step(machine: "_Unpickler") -> None:
        if opcode.name not in _OPCODES:
            raise InputError(f"expected plain arrays, found the pickle opcode {opcode.name}, which is refused")
        if opcode.name == "BUILD":
            return machine.build()
        if opcode.name in _KEYS:  # before they are hashed: the hash of a deeply nested tuple ends the process
            for key in machine.stack[_KEYS[opcode.name]]:
                if type(key) not in (str, bytes, int):
                    raise ValueError(f"expected text as a key, found {type(key).__name__}")
        return pickle._Unpickler.dispatch[ord(opcode.code)](machine)  # type: ignore[arg-type]

    return step


class _Unpickler(pickle._Unpickler):
    dispatch = {ord(opcode.code): _guarded(opcode) for opcode in pickletools.opcodes}  # noqa: RUF012
    stack: list[Any]

    def find_class(self, module: str, name: str) -> _Name:
        if f"{module} {name}" not in _NAMES:
            raise InputError(f"expected plain arrays, found '{module} {name}', which could run code and is refused")
        return _Name(f"{module} {name}")

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if type(target) not in (_Dtype, _Array):
            raise InputError(f"expected plain arrays, found a state for {_describe(target)}, which is refused")
        target.set_state(state)
