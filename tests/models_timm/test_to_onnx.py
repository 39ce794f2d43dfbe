"""timm students as graphs: onnxruntime gives the same logits and class names, without tpkd, torch and timm."""

import json
import os

import numpy as np
import pytest
import torch

from models_timm.test_to_timm import photos, trained  # noqa: F401 (the fixture)
from student.graphs import graph_says
from tpkd.student.exporting import export_student
from tpkd.student.loading import load_student

MODELS = ["test_resnet", "test_efficientnet", "test_vit"]
if os.environ.get("TPKD_FAULTS") == "full":
    MODELS += ["test_convnext", "pit_ti_224", "volo_d1_224"]  # a minute, most of it for the last


@pytest.mark.parametrize("name", MODELS)
def test_a_student_goes_out_as_a_graph(tmp_path, photos, name):  # noqa: F811
    size = 224 if "224" in name else 160 if name == "test_vit" else 64
    run = trained(tmp_path, photos, f"timm:{name}", head="random", size=size)
    export_student(run, tmp_path / "out", "onnx")
    student = load_student(run)
    paths = sorted(photos.glob("test/*/*.png"))[:3]
    found = graph_says(tmp_path / "out", student.preprocess(paths), tmp_path)
    expected = student.predict(paths)
    torch.testing.assert_close(torch.tensor(found["logits"]), expected.logits, rtol=1e-5, atol=1e-5)
    assert found["class_names"] == json.loads((tmp_path / "out/student.json").read_text())["class_names"]
    assert [found["class_names"][np.argmax(row)] for row in found["logits"]] == list(expected.labels)
