import builtins
import os
import pickle
import struct
import subprocess
from contextlib import suppress

import numpy as np
import pytest

from tpkd.data.pickled_arrays import read_pickled_arrays
from tpkd.errors import InputError

PLAIN = (dict, list, str, bytes, int, float, bool, type(None), np.ndarray)


def write(tmp_path, content):
    path = tmp_path / "batch"
    path.write_bytes(content)
    return path


def same(first, second):
    if isinstance(first, np.ndarray):
        return first.dtype.newbyteorder("=") == second.dtype.newbyteorder("=") and np.array_equal(first, second)
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and first == second


CONTENTS = [
    {b"data": np.arange(12, dtype=np.uint8).reshape(3, 4), b"fine_labels": [0, 99, 3], b"batch_label": b"training"},
    {"data": np.eye(3)[:, ::-1], "empty": [], "nested": {"a": [1.5, None, True, False, -1, 2**40, 300]}},
    {"fortran": np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)), "shared": [0] * 300},
    {"big endian": np.arange(4, dtype=">i2"), "half": np.ones(2, np.float16), "flags": np.array([True, False])},
    [np.zeros((0, 3)), "ü", b"\xff\x00", "x" * 300],
]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("content", CONTENTS)
def test_reads_what_pickle_wrote(tmp_path, content, protocol):
    path = write(tmp_path, pickle.dumps(content, protocol=protocol))
    assert same(read_pickled_arrays(path), content)


def python2_pickle(rows, columns):
    """The published form: Python 2 strings, and NumPy under its old name."""

    def short(text):
        return b"U" + bytes([len(text)]) + text

    raw = bytes(range(rows * columns))
    return (
        b"\x80\x02}q\x01("
        + (short(b"filenames") + b"]q\x02(" + short(b"bos_s_1.png") + short(b"vache_\xe9.png") + b"e")
        + (short(b"fine_labels") + b"]q\x03(K\x13K\x1de")
        + (short(b"data") + b"cnumpy.core.multiarray\n_reconstruct\nq\x04cnumpy\nndarray\nq\x05K\x00\x85" + short(b"b"))
        + (b"\x87Rq\x06(K\x01" + b"K" + bytes([rows]) + b"K" + bytes([columns]) + b"\x86")
        + (b"cnumpy\ndtype\nq\x07" + short(b"u1") + b"K\x00K\x01\x87Rq\x08(K\x03" + short(b"|"))
        + (b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89")
        + (b"T" + struct.pack("<i", len(raw)) + raw + b"tbu.")
    )


def test_reads_the_published_python_2_form(tmp_path):
    content = python2_pickle(3, 64)
    expected = pickle.loads(content, encoding="latin1")
    assert same(read_pickled_arrays(write(tmp_path, content)), expected)
    assert expected["data"].shape == (3, 64)


class Calls:
    def __init__(self, function, *arguments):
        self.parts = function, arguments

    def __reduce__(self):
        return self.parts


class Restored:
    def __init__(self):
        self.x = 1


def hostile_files(marker):
    command = f"touch {marker}"
    shell = command.encode()
    yield "os.system", pickle.dumps(Calls(os.system, command), protocol=2)
    yield "os.system in a dict", pickle.dumps({b"data": Calls(os.system, command)}, protocol=4)
    yield "subprocess", pickle.dumps([Calls(subprocess.getoutput, command)], protocol=0)
    yield "eval", pickle.dumps(Calls(builtins.eval, f"open({str(marker)!r}, 'w')"), protocol=2)
    yield "open", pickle.dumps(Calls(builtins.open, str(marker), "w"), protocol=3)
    yield "codecs.encode with a codec", b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hext\x85R."
    yield "an argument of encode that runs", b"c_codecs\nencode\n(cos\nsystem\n(V" + shell + b"\ntRVlatin1\ntR."
    yield "INST", b"(S'" + shell + b"'\nios\nsystem\n."
    yield "OBJ", b"(cos\nsystem\nS'" + shell + b"'\no."
    yield "NEWOBJ", pickle.dumps(Restored(), protocol=2)
    yield "BUILD on a dict", b"}}(X\x01\x00\x00\x00aK\x01ub."
    yield "BUILD on an array name", b"cnumpy\nndarray\n}b."
    yield "EXT", b"\x82\x01."
    yield "PERSID", b"Pabc\n."
    yield "BINPERSID", b"K\x01Q."
    yield "STACK_GLOBAL", b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c" + bytes([len(shell)]) + shell + b"\x85R."
    yield "numpy.load", b"cnumpy\nload\n(V" + str(marker).encode() + b"\ntR."
    yield "object array", pickle.dumps(np.array([Calls(os.system, command)], dtype=object), protocol=2)
    yield "dtype with a field", pickle.dumps(np.zeros(2, [("a", "i4")]), protocol=2)
    yield "ndarray called", b"cnumpy\nndarray\n(K\x02K\x02\x86tR."
    yield "a bare name", b"cnumpy\nndarray\n."
    yield "set", pickle.dumps({1, 2}, protocol=4)


@pytest.mark.parametrize("name", [name for name, _ in hostile_files("x")])
def test_hostile_pickles_are_refused_and_run_nothing(tmp_path, name):
    marker = tmp_path / "executed"
    path = write(tmp_path, dict(hostile_files(marker))[name])
    with pytest.raises(InputError) as caught:
        read_pickled_arrays(path)
    assert str(path) in str(caught.value)
    assert not marker.exists()
    assert os.listdir(tmp_path) == ["batch"]


def test_the_hostile_files_would_have_run(tmp_path):
    """Otherwise the test above shows nothing: the standard unpickler executes them."""
    ran = 0
    for name, _ in hostile_files("x"):
        marker = tmp_path / f"executed by {name}".replace(" ", "-")
        with suppress(Exception):  # some are only malformed
            pickle.loads(dict(hostile_files(marker))[name])
        ran += marker.exists()
    assert ran >= 9


def test_the_refused_name_is_told(tmp_path):
    with pytest.raises(InputError, match=r"found '(posix|nt) system', which could run code and is refused"):
        read_pickled_arrays(write(tmp_path, pickle.dumps(Calls(os.system, "true"), protocol=2)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b".",
        b"not a pickle",
        b"\x80\x02}q\x01",
        b"K\x01" + b"r\xff\xff\xff\x7f" + b"h\x00.",  # a memo index that would make the standard reader take 32 GB
        b"\x80\x04\x8e" + (2**60).to_bytes(8, "little") + b"abc.",
        b"L" + b"9" * 5000 + b"L\n.",
        b"(" * 100_000 + b".",
        b"]" * 100_000 + b"a" * 99_999 + b"b.",
        b"}(]K\x01u.",
        b"\x85.",
        b"u.",
        b"h\x05.",
        b"\x96" + (2**60).to_bytes(8, "little") + b"abc.",
    ],
)
def test_malformed_pickles_are_refused_in_one_line(tmp_path, content):
    path = write(tmp_path, content)
    with pytest.raises(InputError) as caught:
        read_pickled_arrays(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("start", "end"), [(b"}", b"s"), (b"}(", b"u"), (b"(", b"d")])
def test_a_key_nested_without_end_is_refused_before_it_is_hashed(tmp_path, start, end):
    """Its hash recurses in C without a limit, and would end the process."""
    path = write(tmp_path, start + b")" + b"\x85" * 1_000_000 + b"K\x01" + end + b".")
    with pytest.raises(InputError, match="expected text as a key, found tuple"):
        read_pickled_arrays(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere: cannot be read"):
        read_pickled_arrays(tmp_path / "nowhere")


def assert_plain(value, depth=0):
    assert isinstance(value, PLAIN), type(value)
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list) and depth < 5:
        for item in value:
            assert_plain(item, depth + 1)
    if isinstance(value, np.ndarray):
        assert value.dtype.kind in "biuf"


def test_damaged_bytes_give_plain_values_or_an_error(tmp_path):
    """1,500 random damages: never another exception, never another kind of value."""
    random = np.random.default_rng(0)
    sources = [python2_pickle(2, 8)] + [
        pickle.dumps(content, protocol=p) for content in CONTENTS[:2] for p in (0, 2, 4)
    ]
    path = tmp_path / "batch"
    read = refused = 0
    for _ in range(1500):
        content = bytearray(sources[random.integers(len(sources))])
        for _ in range(random.integers(1, 4)):
            content[random.integers(len(content))] = random.integers(256)
        if random.random() < 0.2:
            del content[random.integers(len(content)) :]
        path.write_bytes(content)
        try:
            assert_plain(read_pickled_arrays(path))
            read += 1
        except InputError:
            refused += 1
    assert read > 100
    assert refused > 100
