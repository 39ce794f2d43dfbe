"""A graph gives the student's logits in a process without tpkd, for any batch, or is not published."""

import json
import sys

import numpy as np
import pytest
import torch

from data.test_folder import image_folder
from student.graphs import graph_says
from student.runs import TEXTS, digits_run, text_run, tiny_encoder, train_in
from tpkd.config.loading import resolve_config
from tpkd.errors import InputError
from tpkd.student import to_onnx
from tpkd.student.checks import MismatchError
from tpkd.student.exporting import export_student
from tpkd.student.loading import load_student


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


def other_runs(folder, model):
    """A small run of a network that only tpkd has, and inputs for its student."""
    random = np.random.default_rng(0)
    settings = {"objective": "ce", "optimizer": {"name": "sgd", "learning_rate": 0.05}, "epochs": 1}
    if model == "builtin:bert":
        return text_run(folder), list(TEXTS.values())
    if model == "builtin:mlp":
        for split in ("train", "test"):
            features = random.normal(size=(12, 5)).astype(np.float32)
            np.savez(folder / f"{split}.npz", features=features, labels=np.arange(12) % 3, class_names=["a", "b", "c"])
        data, inputs = {"data": {"name": f"vector:{folder}"}}, random.normal(size=(4, 5)).astype(np.float32)
    else:
        image_folder(folder / "photos", [f"{part}/{name}/1.png" for part in ("train", "test") for name in "abc"], 12)
        data = {"data": {"name": f"folder:{folder / 'photos'}"}, "views": {"size": 16}}
        inputs = random.integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
    settings |= data | {"student": {"model": model}, "output": str(folder / "run"), "tensorboard": False}
    return train_in(folder / "run", resolve_config(settings | {"device": "cpu"})), inputs


@pytest.mark.parametrize("model", ["builtin:mlp", "builtin:resnet8", "builtin:bert"])
def test_networks_that_only_tpkd_has_go_out_as_graphs(tmp_path, model):
    run, inputs = other_runs(tmp_path, model)
    export_student(run, tmp_path / "out", "onnx")
    student = load_student(run)
    found, expected = graph_says(tmp_path / "out", student.preprocess(inputs), tmp_path), student.predict(inputs)
    torch.testing.assert_close(torch.tensor(found["logits"]), expected.logits, rtol=1e-5, atol=1e-5)
    assert found["class_names"] == list(student.class_names)
    assert [found["class_names"][np.argmax(row)] for row in found["logits"]] == list(expected.labels)


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
