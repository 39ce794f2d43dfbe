"""A folder is published whole, never over another, and formats are known by name."""

import pytest

from student.runs import digits_run
from tpkd.errors import InputError
from tpkd.student.exporting import export_student, published_folder


@pytest.mark.parametrize(
    ("format", "message"),
    [
        ("safetensor", "--format safetensor: expected one of safetensors, onnx, hf; did you mean safetensors?"),
        ("hf", "builtin:mlp: a network of our own, which no other library has; use onnx or safetensors"),
    ],
)
def test_a_format_that_cannot_be_is_refused(tmp_path, format, message):
    with pytest.raises(InputError) as caught:
        export_student(digits_run(tmp_path), tmp_path / "out", format)
    assert str(caught.value) == message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_folder_with_something_in_it_is_not_touched(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="expected a new folder, found one that exists"):
        export_student(digits_run(tmp_path), tmp_path / "out", "safetensors")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_an_empty_folder_is_filled_and_parents_are_made(tmp_path):
    run = digits_run(tmp_path)
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "a" / "b"):
        export_student(run, out, "safetensors")
        assert (out / "student.safetensors").is_file()


def test_the_name_of_a_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected the name of a folder"):
        export_student(digits_run(tmp_path), tmp_path / "student.onnx", "onnx")


@pytest.mark.parametrize("missing", ["config.yaml", "result.json", "student.safetensors"])
def test_a_run_with_a_missing_file_leaves_nothing(tmp_path, missing):
    run = digits_run(tmp_path)
    (run / missing).unlink()
    with pytest.raises(InputError, match=str(run)):
        export_student(run, tmp_path / "out", "safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_folder_that_appears_meanwhile_is_not_replaced(tmp_path):
    def meanwhile():
        with published_folder(tmp_path / "out") as folder:
            (folder / "ours").touch()
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "theirs").touch()

    with pytest.raises(InputError, match="expected a new folder"):
        meanwhile()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "theirs"]
