"""timm loads a student in a process without tpkd, with the same predictions, class names and preprocessing."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from student.fresh import run_fresh
from tpkd.config.loading import resolve_config
from tpkd.errors import InputError
from tpkd.student.checks import MismatchError
from tpkd.student.exporting import export_student
from tpkd.student.loading import load_student
from tpkd.training.loop import train

LOAD = """
import json, sys
sys.path.insert(0, sys.argv[3])
import models_timm.conftest  # the operators that a torchvision for another torch lacks
import numpy, timm, torch
model = timm.create_model(f"local-dir:{sys.argv[1]}", pretrained=True).eval()
again = timm.create_model(model.pretrained_cfg["architecture"], num_classes=model.num_classes,
                          checkpoint_path=sys.argv[1] + "/model.safetensors").eval()
inputs = torch.from_numpy(numpy.load(sys.argv[2]))
with torch.no_grad():
    logits = model(inputs)
    assert torch.equal(logits, again(inputs))
print(json.dumps({"logits": logits.tolist(), "names": model.pretrained_cfg["label_names"],
                  "data": timm.data.resolve_model_data_config(model)}))
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("cat", "dog", "owl"):
            (folder / split / name).mkdir(parents=True)
            for number in range(3):
                pixels = generator.integers(0, 256, (40, 36, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{number}.png")
    return folder


def trained(folder, photos, model, head="own", size=64):
    settings = {
        "output": str(folder / "run"),
        "data": {"name": f"folder:{photos}"},
        "views": {"size": size, "mean": [0.5, 0.4, 0.3], "std": [0.2], "scale": 255},
        "student": {"model": model, "head": head},
        "objective": "ce",
        "optimizer": {"name": "sgd", "learning_rate": 0.01},
        "epochs": 1,
        "batch_size": 9,
        "tensorboard": False,
        "device": "cpu",
    }
    train(resolve_config(settings), folder / "run")
    return folder / "run"


def test_a_student_goes_out_and_comes_back(tmp_path, photos):
    run = trained(tmp_path, photos, "timm:test_resnet", head="random")
    out = tmp_path / "out"
    export_student(run, out, "hf")
    student = load_student(run)
    paths = sorted(photos.glob("test/*/*.png"))
    np.save(tmp_path / "inputs.npy", student.preprocess(paths).numpy())
    found = run_fresh(LOAD, out, tmp_path / "inputs.npy", Path(__file__).parents[1])
    torch.testing.assert_close(torch.tensor(found["logits"]), student.predict(paths).logits, rtol=1e-5, atol=1e-5)
    assert found["names"] == ["cat", "dog", "owl"]
    assert found["data"]["input_size"] == [3, 64, 64]
    assert found["data"]["mean"] == [0.5, 0.4, 0.3]
    assert found["data"]["std"] == [0.2, 0.2, 0.2]
    assert found["data"]["crop_pct"] == 1.0
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "config.json", "model.safetensors"]


def test_other_logits_are_not_published(tmp_path, photos, monkeypatch):
    import timm

    run, real = trained(tmp_path, photos, "timm:test_resnet"), timm.create_model

    def other(name, **settings):
        model = real(name, **settings)
        if name.startswith("local-dir:"):
            with torch.no_grad():
                model.get_classifier().bias[0] += 1e-2
        return model

    monkeypatch.setattr(timm, "create_model", other)
    with pytest.raises(MismatchError, match="timm: expected the student's logits within 1e-05"):
        export_student(run, tmp_path / "out", "hf")
    assert not (tmp_path / "out").exists()


def test_a_network_that_lost_a_head_comes_back_to_us_and_is_refused_for_timm(tmp_path, photos):
    """A new head removes the one that VOLO has for its tokens; timm builds the network with both."""
    run = trained(tmp_path, photos, "timm:volo_d1_224", head="random", size=224)
    with pytest.raises(InputError, match=r"timm does not load it: .*; use onnx or safetensors"):
        export_student(run, tmp_path / "out", "hf")
    export_student(run, tmp_path / "ours", "safetensors")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["new_head"]
    paths = sorted(photos.glob("test/*/*.png"))[:2]
    assert torch.equal(load_student(run).predict(paths).logits, load_student(tmp_path / "ours").predict(paths).logits)
