"""`tpkd export`: what it prints, and how it exits."""

import pytest

from cli.training_runs import run as run_command
from student.runs import digits_run
from tpkd.student import exporting
from tpkd.student.checks import MismatchError


@pytest.fixture
def tpkd(capsys, monkeypatch):
    return lambda *arguments: run_command(capsys, monkeypatch, *arguments)


def test_a_folder_that_predict_takes(tpkd, tmp_path):
    run, out = digits_run(tmp_path), tmp_path / "out"
    code, said, err = tpkd("export", run, out, "--format", "safetensors")
    assert (code, err) == (0, "")
    assert said.endswith(f"written: {out}\n")
    assert tpkd("predict", out, "digits")[:2] == tpkd("predict", run, "digits")[:2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["{run}", "{folder}/out", "--format", "onxx"],
            "--format onxx: expected one of safetensors, onnx, hf; did you",
        ),
        (["{run}", "{folder}/out", "--format", "hf"], "use onnx or safetensors"),
        (["{run}", "{run}", "--format", "safetensors"], "expected a new folder, found one that exists"),
        (["{folder}/none", "{folder}/out", "--format", "onnx"], "none: expected a run directory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(tpkd, tmp_path, arguments, message):
    run = digits_run(tmp_path)
    code, said, err = tpkd("export", *(argument.format(run=run, folder=tmp_path) for argument in arguments))
    assert (code, said) == (2, "")
    assert err.count("\n") == 1
    assert message in err
    assert not (tmp_path / "out").exists()


def test_other_logits_are_one_line_and_exit_1(tpkd, tmp_path, monkeypatch):
    def differ(student, folder):
        raise MismatchError("onnxruntime: another number; nothing was written")

    monkeypatch.setitem(exporting.FORMATS, "onnx", differ)
    code, said, err = tpkd("export", digits_run(tmp_path), tmp_path / "out", "--format", "onnx")
    assert (code, said, err) == (1, "", "tpkd: onnxruntime: another number; nothing was written\n")
    assert not (tmp_path / "out").exists()
