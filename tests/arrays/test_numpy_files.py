"""Headers that promise what is not there: refused in one line, before any memory is taken for it."""

import io
import json
import struct
import tracemalloc
import zipfile
from itertools import islice

import numpy as np
import pytest

from tpkd.arrays import open_array
from tpkd.errors import InputError

HEADER = "{{'descr': '<f4', 'fortran_order': {order}, 'shape': {shape}, }}"


def npy(header, payload=b"", *, version=1, length=None):
    text = header.encode("latin-1") + b"\n"
    width = "<H" if version == 1 else "<I"
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + struct.pack(width, len(text) if length is None else length)
        + text
        + payload
    )


def npy_of_shape(shape, payload=b"", order=False):
    return npy(HEADER.format(order=order, shape=shape), payload)


def safetensors(shape, dtype="F32", size=0):
    header = json.dumps({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


def refused(path):
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            list(islice(open_array(path).blocks(1), 10))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


HUGE = [(2**62, 4), (4, 2**62), (2**32, 2**32), (2**21, 2**21, 2**21), (2**64, 1)]
EMPTY = [(2**40, 0), (3, 0, 2**62)]
NEGATIVE = [(-1, 3), (3, -1), (-2, -3)]


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("shape", [*HUGE[:3], HUGE[4], *EMPTY, NEGATIVE[2]])
def test_shapes_whose_size_wraps_around_are_refused(tmp_path, shape, order):
    payload = bytes(24) if shape == NEGATIVE[2] else b""
    (tmp_path / "x.npy").write_bytes(npy_of_shape(shape, payload, order))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("logits.npy", npy_of_shape(shape, payload, order))
    for name in ("x.npy", "x.npz"):
        message = refused(tmp_path / name)
        assert " for shape (" in message or " found shape (" in message


@pytest.mark.parametrize("shape", [HUGE[3], *NEGATIVE[:2], ("3", 2), (3.0, 2), (None,)])
def test_shapes_that_are_no_shapes_are_refused(tmp_path, shape):
    (tmp_path / "x.npy").write_bytes(npy_of_shape(shape))
    refused(tmp_path / "x.npy")


@pytest.mark.parametrize("shape", [(2**62, 4), (2**64 - 1, 2), (-1, 3)])
def test_safetensors_whose_sizes_wrap_around_are_refused(tmp_path, shape):
    (tmp_path / "x.safetensors").write_bytes(safetensors(shape))
    refused(tmp_path / "x.safetensors")


@pytest.mark.parametrize(("shape", "dtype", "size"), [((2**20, 0), "F32", 0), ((2, 3), "C64", 48)])
def test_safetensors_without_real_numbers_in_their_rows_are_refused(tmp_path, shape, dtype, size):
    (tmp_path / "x.safetensors").write_bytes(safetensors(shape, dtype, size))
    refused(tmp_path / "x.safetensors")


UNREADABLE = {
    "unbalanced": "{'descr': '<f4', 'shape': (3,",
    "string": "{'descr': '<f4",
    "indented": "  {'a':\n 1,\n   'b'",
    "long": "{'descr': 3L, 'shape': (3L,",
    "calls": "__import__('os')",
    "deep": "(" * 300 + ")" * 300,
    "nul": "{'descr': '\0'}",
    "descr": "{'descr': [('a',)], 'fortran_order': False, 'shape': (3,)}",
    "descr tuple": "{'descr': ('<f4', ), 'fortran_order': False, 'shape': (3,)}",
    "descr number": "{'descr': 7, 'fortran_order': False, 'shape': (3,)}",
    "keys": "{1: 2, 'a': 3}",
    "list": "[1, 2]",
}


@pytest.mark.parametrize("name", ["unbalanced", "string", "indented", "long", "descr tuple", "keys"])
def test_headers_that_numpy_cannot_parse_are_refused(tmp_path, name):
    (tmp_path / "x.npy").write_bytes(npy(UNREADABLE[name]))
    refused(tmp_path / "x.npy")


@pytest.mark.parametrize("name", ["calls", "deep", "nul", "descr", "descr number", "list"])
def test_headers_that_are_no_headers_are_refused(tmp_path, name):
    (tmp_path / "x.npy").write_bytes(npy(UNREADABLE[name]))
    refused(tmp_path / "x.npy")


def test_the_length_of_a_header_is_bounded(tmp_path):
    (tmp_path / "x.npy").write_bytes(npy("{}", version=2, length=2**32 - 1))
    refused(tmp_path / "x.npy")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archives_are_stored_or_deflated_as_numpy_writes_them(tmp_path, method):
    content = io.BytesIO()
    np.save(content, np.zeros((4, 3), np.float32))
    with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as archive:
        archive.writestr("logits.npy", content.getvalue())
    assert "compression" in refused(tmp_path / "x.npz")


def test_seeded_damage_to_headers_never_escapes(tmp_path):
    generator = np.random.default_rng(0)
    path = tmp_path / "x.npy"
    np.save(path, np.arange(12, dtype=np.float32).reshape(4, 3))
    good, messages = path.read_bytes(), []
    for _ in range(150):
        data = bytearray(good)
        for place in generator.integers(0, 128, generator.integers(1, 4)):
            data[place] = generator.integers(0, 256)
        path.write_bytes(bytes(data))
        try:
            list(islice(open_array(path).blocks(2), 10))
        except InputError as error:
            messages.append(str(error))
    assert len(messages) > 50
    assert not any("\n" in message for message in messages)


def test_class_names_beside_an_array(tmp_path):
    names = np.array(["cat", "dog", "bird"])
    np.savez(tmp_path / "a.npz", scores=np.zeros((2, 3)), class_names=names)
    assert open_array(tmp_path / "a.npz").class_names == ("cat", "dog", "bird")
    np.savez(tmp_path / "a.npz", logits=np.zeros((2, 3)), labels=np.arange(2))
    assert open_array(tmp_path / "a.npz").class_names is None


@pytest.mark.parametrize("names", [np.arange(3), np.array([["a"]]), np.array([], dtype=str), np.full(1 << 17, "a")])
def test_class_names_that_are_none_are_refused(tmp_path, names):
    np.savez_compressed(tmp_path / "a.npz", logits=np.zeros((2, 3)), class_names=names)
    with pytest.raises(InputError, match=r"a\.npz: .*expected .* texts?"):
        open_array(tmp_path / "a.npz")
