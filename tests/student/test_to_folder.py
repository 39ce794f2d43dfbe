"""A student in a folder of its own: everything it needs, and the same predictions."""

import shutil

import pytest
import torch

from student.runs import TEXTS, digits_run, rewrite, text_run, tiny_encoder
from tpkd.errors import InputError
from tpkd.student.exporting import export_student
from tpkd.student.loading import load_student


def test_a_student_goes_out_and_comes_back(tmp_path):
    run, out = digits_run(tmp_path), tmp_path / "out"
    export_student(run, out, "safetensors")
    inputs = torch.randint(256, (5, 8, 8), dtype=torch.uint8).numpy()
    before = load_student(run)
    shutil.rmtree(run)
    after = load_student(out)
    assert torch.equal(before.predict(inputs).logits, after.predict(inputs).logits)
    assert after.class_names == before.class_names
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "config.json", "student.safetensors"]


@pytest.mark.parametrize("model", ["builtin:bert", "hf"])
def test_tokenizer_and_configuration_go_with_it(tmp_path, model):
    encoder = tiny_encoder(tmp_path / "encoder")
    if model == "hf":
        run = text_run(tmp_path, f"hf:{encoder}", pooling="mean")
    else:
        shape = {"layers": 1, "hidden_size": 16, "heads": 2, "vocab_size": 60, "max_positions": 16}
        run = text_run(tmp_path, model, tokenizer=str(encoder), **shape)
    before = load_student(run).predict(list(TEXTS.values()))
    export_student(run, tmp_path / "out", "safetensors")
    moved = (tmp_path / "out").rename(tmp_path / "moved")
    shutil.rmtree(run)
    shutil.rmtree(encoder)
    after = load_student(moved).predict(list(TEXTS.values()))
    assert torch.equal(before.logits, after.logits)
    assert str(tmp_path) not in (moved / "config.json").read_text()


def test_damaged_weights_are_refused(tmp_path):
    export_student(digits_run(tmp_path), tmp_path / "out", "safetensors")
    rewrite(tmp_path / "out" / "student.safetensors", lambda tensors: {**tensors, "fc.bias": -tensors["fc.bias"]})
    with pytest.raises(InputError, match="damaged or replaced"):
        load_student(tmp_path / "out")
