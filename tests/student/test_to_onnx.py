"""A graph gives the student's logits in a process without tpkd, for any batch, or is not published."""

import json
import sys

import numpy as np
import pytest
import torch

from student.fresh import run_fresh
from student.runs import TEXTS, digits_run, text_run, tiny_encoder
from tpkd.errors import InputError
from tpkd.student import to_onnx
from tpkd.student.checks import MismatchError
from tpkd.student.exporting import export_student
from tpkd.student.loading import load_student

RUN_GRAPH = """
import json, sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1] + "/student.onnx", providers=["CPUExecutionProvider"])
arrays = numpy.load(sys.argv[2])
metadata = session.get_modelmeta().custom_metadata_map
(logits,) = session.run(["logits"], {each.name: arrays[each.name] for each in session.get_inputs()})
print(json.dumps({"logits": logits.tolist(), "class_names": json.loads(metadata["class_names"]),
                  "preprocessing": json.loads(metadata["preprocessing"])}))
"""


def graph_says(out, inputs, tmp_path):
    arrays = inputs if isinstance(inputs, dict) else {"inputs": inputs}
    np.savez(tmp_path / "inputs.npz", **{name: value.numpy() for name, value in arrays.items()})
    return run_fresh(RUN_GRAPH, out, tmp_path / "inputs.npz")


def test_images_give_the_same_logits_and_class_names(tmp_path):
    run, out = digits_run(tmp_path), tmp_path / "out"
    export_student(run, out, "onnx")
    student = load_student(run)
    images = np.random.default_rng(0).integers(0, 17, (7, 8, 8)).astype(np.uint8)
    found = graph_says(out, student.preprocess(images), tmp_path)
    expected = student.predict(images).logits
    torch.testing.assert_close(torch.tensor(found["logits"]), expected, rtol=1e-5, atol=1e-5)
    described = json.loads((out / "student.json").read_text())
    assert found["class_names"] == described["class_names"] == list(student.class_names)
    assert found["preprocessing"] == described["preprocessing"]
    assert described["preprocessing"]["scale"] == 16.0
    assert described["inputs"] == {"inputs": {"shape": ["batch", 1, 8, 8], "dtype": "float32"}}
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "student.json", "student.onnx"]


def test_texts_give_the_same_logits_with_their_tokenizer_beside(tmp_path):
    run = text_run(tmp_path, f"hf:{tiny_encoder(tmp_path / 'encoder')}", pooling="mean")
    export_student(run, tmp_path / "out", "onnx")
    student = load_student(run)
    found = graph_says(tmp_path / "out", student.preprocess(list(TEXTS.values())), tmp_path)
    expected = student.predict(list(TEXTS.values())).logits
    torch.testing.assert_close(torch.tensor(found["logits"]), expected, rtol=1e-5, atol=1e-5)
    assert found["preprocessing"]["tokenizer"] == "tokenizer"
    assert (tmp_path / "out" / "tokenizer" / "tokenizer.json").is_file()


def test_a_graph_with_other_logits_is_not_published(tmp_path, monkeypatch):
    run = digits_run(tmp_path)
    real = to_onnx._trace

    def other(student, samples, description, path):
        bias = student.module.classifier.bias
        with torch.no_grad():
            bias[3] += 0.01
            real(student, samples, description, path)
            bias[3] -= 0.01

    monkeypatch.setattr(to_onnx, "_trace", other)
    with pytest.raises(MismatchError, match=r"onnxruntime: expected the student's logits within 0\.0001"):
        export_student(run, tmp_path / "out", "onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


@pytest.mark.parametrize("name", ["onnx", "onnxruntime", "onnxscript"])
def test_its_libraries_missing_is_one_line_that_names_the_extra(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"{name} is not installed: pip install 'tpkd\[export\]'"):
        export_student(digits_run(tmp_path), tmp_path / "out", "onnx")


def test_data_that_are_gone_are_named(tmp_path):
    run = text_run(tmp_path)
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("/data", "/gone"))
    with pytest.raises(
        InputError, match=r"the graph is checked on test samples of the run, which cannot be read: .*/gone"
    ):
        export_student(run, tmp_path / "out", "onnx")
    assert not (tmp_path / "out").exists()
