"""Arrays come out of files as they went in, block by block; damaged ones are refused by name."""

import os
import zipfile

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import save_file

from tpkd.arrays import ARRAY_SUFFIXES, array_names, open_array, open_texts
from tpkd.errors import InputError

ROWS = 23


def save(path, array, key="logits"):
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez(path, **{key: array})
    elif path.suffix == ".safetensors":
        save_file({key: torch.from_numpy(np.ascontiguousarray(array))}, path)
    elif path.suffix in (".pt", ".pth"):
        torch.save({key: torch.from_numpy(array)}, path)
    elif path.suffix == ".parquet":
        parquet.write_table(pa.table({f"c{place}x": column for place, column in enumerate(array.T)}), path)
    else:
        np.savetxt(path, array, delimiter="\t" if path.suffix == ".tsv" else ",", fmt="%.9g")


@pytest.fixture
def array():
    return np.random.default_rng(0).normal(size=(ROWS, 5)).astype(np.float32)


@pytest.mark.parametrize("suffix", ARRAY_SUFFIXES)
@pytest.mark.parametrize("rows", [1, 7, ROWS, 1000])
def test_blocks_are_the_rows_in_order(tmp_path, array, suffix, rows):
    path = tmp_path / f"a{suffix}"
    save(path, array)
    opened = open_array(path)
    blocks = list(opened.blocks(rows))
    assert opened.shape == array.shape
    assert opened.dtype == (torch.float64 if suffix in (".csv", ".tsv") else torch.float32)
    assert all(len(block) == rows for block in blocks[:-1])
    assert torch.equal(torch.cat(blocks).float(), torch.from_numpy(array))


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
    "logits.xlsx": lambda path: path.write_text("1,2,3\n"),
    **{f"missing{suffix}": lambda path: None for suffix in ARRAY_SUFFIXES},
    **{f"empty{suffix}": lambda path: path.write_bytes(b"") for suffix in ARRAY_SUFFIXES},
    **{f"zeros{suffix}": lambda path: path.write_bytes(bytes(999)) for suffix in ARRAY_SUFFIXES},
    **{f"text{suffix}": lambda path: path.write_text("a,b\n") for suffix in (".pt", ".pth", ".parquet")},
    **{f"folder{suffix}": lambda path: path.mkdir() for suffix in ARRAY_SUFFIXES},
    **{f"pipe{suffix}": os.mkfifo for suffix in ARRAY_SUFFIXES},
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_cannot_be_read_is_refused_in_one_line_that_names_the_file(tmp_path, name):
    path = tmp_path / name
    DAMAGE[name](path)
    with pytest.raises(InputError) as caught:
        list(open_array(path).blocks(2))
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


def test_an_array_or_column_may_be_asked_for_by_its_name(tmp_path, array):
    np.savez(tmp_path / "a.npz", scores=array)
    assert open_array(tmp_path / "a.npz", key="scores", exact=True).shape == array.shape
    with pytest.raises(InputError, match=r"a\.npz: expected .* named 'score', found scores; did you mean scores\?"):
        open_array(tmp_path / "a.npz", key="score", exact=True)
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InputError, match=r"a\.npy: expected .* named 'scores', found none with a name"):
        open_array(tmp_path / "a.npy", key="scores", exact=True)
    (tmp_path / "a.csv").write_text("text,topic,label\nhello,7,x\n")
    assert open_array(tmp_path / "a.csv", key="topic", exact=True).shape == (1,)
    with pytest.raises(InputError, match=r"named 'topics', found text, topic, label; did you mean topic\?"):
        open_texts(tmp_path / "a.csv", key="topics", exact=True)


TEXTS = ["cat", "zebra dog", "été", "cat"]


def write_texts(path):
    if path.suffix == ".npy":
        np.save(path, np.array(TEXTS))
    elif path.suffix == ".npz":
        np.savez(path, labels=np.array(TEXTS, dtype=">U12"), logits=np.zeros(4))
    elif path.suffix == ".parquet":
        parquet.write_table(pa.table({"label": pa.array(TEXTS).dictionary_encode(), "x": [1.0, 2, 3, 4]}), path)
    else:
        path.write_text("".join(f"{text}\n" for text in TEXTS))


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet", ".csv", ".tsv", ".txt"])
@pytest.mark.parametrize("rows", [1, 3, 9])
def test_texts_are_read_in_order(tmp_path, suffix, rows):
    write_texts(tmp_path / f"a{suffix}")
    texts = open_texts(tmp_path / f"a{suffix}")
    blocks = list(texts.blocks(rows))
    assert (texts.rows, [text for block in blocks for text in block]) == (4, TEXTS)
    assert all(len(block) == rows for block in blocks[:-1])


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".pt", ".parquet"])
def test_numbers_are_not_texts(tmp_path, array, suffix):
    save(tmp_path / f"a{suffix}", array)
    assert open_texts(tmp_path / f"a{suffix}") is None


def test_pickled_texts_are_refused_with_what_to_do(tmp_path):
    np.save(tmp_path / "a.npy", np.array(TEXTS, dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"found a pickled array; .* save texts with astype\(str\)"):
        open_texts(tmp_path / "a.npy")


@pytest.mark.parametrize("array", [np.array([["a"]]), np.array(["x" * 20_000])])
def test_texts_in_a_matrix_or_of_any_length_are_refused(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InputError, match=r"a\.npy: expected one text of at most 16384 characters per row, found <U"):
        open_texts(tmp_path / "a.npy")
