"""Tensors out of torch's own files; nothing else, and nothing runs."""

import pickle
import zipfile
from collections import OrderedDict

import pytest
import torch

from tpkd.arrays import array_names, open_array
from tpkd.errors import InputError

VALUES = torch.randn(11, 4, generator=torch.Generator().manual_seed(0))


def save(tmp_path, content, **options):
    torch.save(content, tmp_path / "a.pt", **options)
    return tmp_path / "a.pt"


def read(path, key="logits", rows=3):
    return torch.cat(list(open_array(path, key=key).blocks(rows)))


TAKEN = {
    "a tensor": VALUES,
    "a dictionary": {"logits": VALUES, "labels": torch.arange(11)},
    "the only tensor": {"scores": VALUES, "epoch": 3},
    "an ordered dictionary": OrderedDict(logits=VALUES),
    "a parameter": torch.nn.Parameter(VALUES.clone()),
    "transposed": VALUES.t().contiguous().t(),
    "a part of a tensor": torch.cat([torch.zeros(5, 4), VALUES])[5:],
}


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("new_format", [True, False])
def test_tensors_by_name_or_alone(tmp_path, name, new_format):
    path = save(tmp_path, TAKEN[name], _use_new_zipfile_serialization=new_format)
    found = read(path)
    assert torch.equal(found, VALUES)
    assert not found.requires_grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.bool])
def test_every_dtype_stays(tmp_path, dtype):
    values = (VALUES * 3).to(dtype)
    path = save(tmp_path, values)
    assert open_array(path).dtype == dtype
    assert torch.equal(read(path), values)


def test_names_of_arrays_and_classes(tmp_path):
    path = save(tmp_path, {"b": VALUES, "a": VALUES, "class_names": ["w", "x", "y", "z"], "epoch": 3})
    assert array_names(path) == ("a", "b")
    assert open_array(path, key="a").class_names == ("w", "x", "y", "z")
    assert array_names(save(tmp_path, VALUES)) == ()
    assert open_array(tmp_path / "a.pt").class_names is None


REFUSED = {
    "several": ({"a": VALUES, "b": VALUES}, "expected an array named 'logits' or a single array, found a, b"),
    "none": ({"epoch": 3, "model": {"w": VALUES}}, "found a dictionary of 'epoch', 'model'"),
    "a list": ([VALUES], "expected a tensor, or a dictionary of tensors, found list"),
    "a number": (torch.tensor(1.0), "expected an array with rows, found a single number"),
    "no columns": (torch.zeros(3, 0), "expected rows with at least one number each"),
    "sparse": (VALUES.to_sparse(), "expected a dense tensor of real numbers, found float32 in layout sparse_coo"),
    "complex": (VALUES.to(torch.complex64), "expected a dense tensor of real numbers, found complex64"),
    "meta": (torch.empty(3, 4, device="meta"), "expected a dense tensor of real numbers"),
    "names that are none": ({"logits": VALUES, "class_names": [1, 2]}, "class_names: expected a list of names"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_a_dense_tensor_is_refused(tmp_path, name):
    content, message = REFUSED[name]
    path = save(tmp_path, content)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("new_format", [True, False])
def test_code_in_a_file_is_refused_and_does_not_run(tmp_path, new_format):
    path = save(tmp_path, {"logits": VALUES, "x": Trap(tmp_path / "ran")}, _use_new_zipfile_serialization=new_format)
    with pytest.raises(InputError, match=r"a\.pt: expected tensors alone, found \S*open, which reading would run"):
        read(path)
    (tmp_path / "a.pt").write_bytes(pickle.dumps(Trap(tmp_path / "ran")))
    with pytest.raises(InputError, match=r"a\.pt: "):
        read(path)
    assert not (tmp_path / "ran").exists()


def test_a_packed_archive_is_refused_because_its_bytes_are_not_the_numbers(tmp_path):
    path = save(tmp_path, torch.zeros(100, 4))
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name))
    with pytest.raises(InputError, match=r"b\.pt: expected an archive as torch\.save writes it, found .* compressed"):
        read(tmp_path / "b.pt")


@pytest.mark.parametrize("new_format", [True, False])
def test_every_cut_is_refused(tmp_path, new_format):
    path = save(tmp_path, VALUES, _use_new_zipfile_serialization=new_format)
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"a\.pt: "):
            read(path)
