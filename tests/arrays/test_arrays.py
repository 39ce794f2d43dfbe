"""Arrays come out of files as they went in, block by block; damaged ones are refused by name."""

import os
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tpkd.arrays import array_names, open_array
from tpkd.errors import InputError

ROWS = 23


def save(path, array, key="logits"):
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez(path, **{key: array})
    else:
        save_file({key: torch.from_numpy(np.ascontiguousarray(array))}, path)


@pytest.fixture
def array():
    return np.random.default_rng(0).normal(size=(ROWS, 5)).astype(np.float32)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
@pytest.mark.parametrize("rows", [1, 7, ROWS, 1000])
def test_blocks_are_the_rows_in_order(tmp_path, array, suffix, rows):
    path = tmp_path / f"a{suffix}"
    save(path, array)
    opened = open_array(path)
    blocks = list(opened.blocks(rows))
    assert opened.shape == array.shape
    assert opened.dtype == torch.float32
    assert all(len(block) == rows for block in blocks[:-1])
    assert torch.equal(torch.cat(blocks), torch.from_numpy(array))


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", ">f8", "i1", "<i4", ">i8", "<u2"])
def test_every_dtype_and_byte_order(tmp_path, dtype):
    expected = np.arange(12).reshape(6, 2).astype(dtype)
    np.save(tmp_path / "a.npy", expected)
    values = torch.cat(list(open_array(tmp_path / "a.npy").blocks(4)))
    assert values.tolist() == expected.tolist()


def test_columns_first_arrays(tmp_path, array):
    np.save(tmp_path / "a.npy", np.asfortranarray(array))
    assert torch.equal(torch.cat(list(open_array(tmp_path / "a.npy").blocks(4))), torch.from_numpy(array))


def test_compressed_archives(tmp_path, array):
    np.savez_compressed(tmp_path / "a.npz", logits=array, labels=np.arange(ROWS))
    assert torch.equal(torch.cat(list(open_array(tmp_path / "a.npz").blocks(4))), torch.from_numpy(array))
    assert open_array(tmp_path / "a.npz", key="labels").shape == (ROWS,)


def test_bfloat16_safetensors(tmp_path):
    values = torch.arange(8.0).reshape(4, 2).bfloat16()
    save_file({"x": values}, tmp_path / "a.safetensors")
    assert torch.equal(torch.cat(list(open_array(tmp_path / "a.safetensors").blocks(3))), values)


def test_a_single_array_needs_no_name_and_several_do(tmp_path, array):
    np.savez(tmp_path / "one.npz", anything=array)
    assert open_array(tmp_path / "one.npz").shape == array.shape
    np.savez(tmp_path / "two.npz", left=array, right=array)
    with pytest.raises(InputError, match=r"two\.npz: expected an array named 'logits' .* found left, right"):
        open_array(tmp_path / "two.npz")
    save_file({"a": torch.zeros(2, 3), "b": torch.zeros(2, 3)}, tmp_path / "two.safetensors")
    with pytest.raises(InputError, match="found a, b"):
        open_array(tmp_path / "two.safetensors")


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(bytes(data))


DAMAGE = {
    "missing.npy": lambda path: None,
    "empty.npy": lambda path: path.write_bytes(b""),
    "empty.npz": lambda path: path.write_bytes(b""),
    "empty.safetensors": lambda path: path.write_bytes(b""),
    "text.npy": lambda path: path.write_text("0.1,0.2\n"),
    "text.npz": lambda path: path.write_text("0.1,0.2\n"),
    "text.safetensors": lambda path: path.write_text("0.1,0.2\n" * 9),
    "short.npy": lambda path: (np.save(path, np.zeros((9, 3))), truncate(path)),
    "long.npy": lambda path: (np.save(path, np.zeros((9, 3))), path.write_bytes(path.read_bytes() + b"\0")),
    "short.npz": lambda path: (np.savez(path, logits=np.zeros((9, 3))), truncate(path)),
    "short.safetensors": lambda path: (save_file({"x": torch.zeros(9, 3)}, path), truncate(path)),
    "pickled.npy": lambda path: np.save(path, np.array([{}, 1], dtype=object), allow_pickle=True),
    "pickled.npz": lambda path: np.savez(path, logits=np.array([None], dtype=object)),
    "names.npy": lambda path: np.save(path, np.array(["a", "b"])),
    "complex.npy": lambda path: np.save(path, np.zeros((2, 3), dtype=complex)),
    "scalar.npy": lambda path: np.save(path, np.float32(1)),
    "columns.npz": lambda path: np.savez(path, logits=np.asfortranarray(np.zeros((4, 3)))),
    "logits.csv": lambda path: path.write_text("1,2,3\n"),
    "folder.npy": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_cannot_be_read_is_refused_in_one_line_that_names_the_file(tmp_path, name):
    path = tmp_path / name
    DAMAGE[name](path)
    with pytest.raises(InputError) as caught:
        open_array(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_flipped_byte_in_an_archive_is_found_while_reading(tmp_path, array):
    np.savez(tmp_path / "a.npz", logits=array)
    flip(tmp_path / "a.npz")
    with pytest.raises(InputError, match=r"a\.npz: damaged"):
        list(open_array(tmp_path / "a.npz").blocks(100))


def test_a_pickle_is_refused_without_being_run(tmp_path):
    class Payload:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "owned"),))

    np.save(tmp_path / "a.npy", np.array([Payload()], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="pickled array"):
        open_array(tmp_path / "a.npy")
    assert not (tmp_path / "owned").exists()


def test_zip_members_that_are_not_arrays(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(InputError, match=r"a\.npz"):
        open_array(tmp_path / "a.npz")


def test_names_of_the_arrays_in_a_file(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", indices=array, log_probs=array)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("notes.txt", "no array")
    save_file({"b": torch.zeros(2, 3), "a": torch.zeros(2, 3)}, tmp_path / "a.safetensors")
    found = [array_names(tmp_path / f"a{suffix}") for suffix in (".npy", ".npz", ".safetensors")]
    assert found == [(), ("indices", "log_probs"), ("a", "b")]
    (tmp_path / "damaged.npz").write_bytes(b"garbage")
    for name, message in (("damaged.npz", "damaged"), ("missing.safetensors", "cannot be read")):
        with pytest.raises(InputError, match=f"{name}: {message}"):
            array_names(tmp_path / name)
