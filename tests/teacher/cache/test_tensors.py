"""Files are what the library would have written, and are read only as they were expected."""

import hashlib
import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from tpkd.errors import InputError
from tpkd.teacher.cache.tensors import (
    file_bytes,
    header_bytes,
    identify,
    open_tensors,
    tensor_places,
    write_tensors,
)

DTYPES = ("int64", "float32", "int32", "float16", "uint16", "uint8", "bool")


def random_arrays(seed):
    generator = np.random.default_rng(seed)
    shapes = [(), (3,), (2, 5), (0,), (4, 0), (1, 2, 3)]
    names = ["a", "b", "zz", "B", "layer.2", "é", 'quo"te']
    return {
        name: generator.integers(0, 100, shapes[generator.integers(len(shapes))]).astype(generator.choice(DTYPES))
        for name in generator.permutation(names)[: generator.integers(1, 8)]
    }


@pytest.mark.parametrize("seed", range(30))
def test_a_file_is_that_of_the_library_to_the_byte(tmp_path, seed):
    arrays, path = random_arrays(seed), tmp_path / "x.safetensors"
    expected = save(arrays)
    size, digest = write_tensors(path, arrays)
    assert path.read_bytes() == expected
    assert (size, digest) == (len(expected), hashlib.sha256(expected).hexdigest())


@pytest.mark.parametrize("seed", range(10))
def test_size_and_places_are_known_before_the_values(tmp_path, seed):
    arrays = random_arrays(seed)
    layout = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    data = save(arrays)
    assert file_bytes(layout) == len(data)
    assert data.startswith(header_bytes(layout))
    for name, start in tensor_places(layout).items():
        assert data[start : start + arrays[name].nbytes] == arrays[name].tobytes()


def test_a_tensor_is_read_where_the_file_says(tmp_path):
    arrays, path = (
        {"x": np.arange(12, dtype=np.int32).reshape(4, 3), "y": np.arange(4.0, dtype=np.float32)},
        tmp_path / "x",
    )
    size, _ = write_tensors(path, arrays)
    layout = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    file = open_tensors(path, layout, size, identify(path, size))
    pages = file.map()
    for name, array in load_file(path).items():
        assert np.array_equal(file.array(pages, name), array)


def test_another_file_in_the_place_is_refused(tmp_path):
    path, layout = tmp_path / "x", {"x": (np.dtype(np.int64), (2,))}
    size, _ = write_tensors(path, {"x": np.arange(2)})
    identity = identify(path, size)
    file = open_tensors(path, layout, size, identity)
    with pytest.raises(InputError, match="expected 7 bytes, found"):
        identify(path, 7)
    write_tensors(path, {"x": np.arange(2)})
    os.utime(path, ns=(0, 0))
    for action in (file.map, lambda: open_tensors(path, layout, size, identity)):
        with pytest.raises(InputError, match="found that it was replaced since"):
            action()
    with pytest.raises(InputError, match=r"tensor 'x': expected I32 of shape \(2,\), found I64 of shape \(2,\)"):
        open_tensors(path, {"x": (np.dtype(np.int32), (2,))}, size)


def test_what_is_not_a_file_is_refused_by_its_kind(tmp_path):
    with pytest.raises(InputError, match="expected a regular file, found a directory"):
        identify(tmp_path, 3)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="expected a regular file, found a FIFO"):
        identify(tmp_path / "fifo", 3)
