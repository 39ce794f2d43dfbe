"""A student comes back from its run directory alone, and a run that cannot give one says why."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import tpkd
from student.runs import TEXTS, digits_run, rewrite, tensors_of, text_run, tiny_encoder
from tpkd.config.loading import resolve_config
from tpkd.data import load_dataset
from tpkd.errors import InputError
from tpkd.student.loading import load_student, read_run
from tpkd.training import train


def kept_logits(run):
    kept = tensors_of(run / "test-logits.safetensors")
    return kept["logits"], kept["sample_ids"]


def test_a_student_says_what_its_run_said_about_the_test_split(tmp_path):
    run = digits_run(tmp_path)
    student = tpkd.load_student(run)
    logits, ids = kept_logits(run)
    digits = load_dataset("digits", "test")
    positions = [digits.ids.tolist().index(each) for each in ids.tolist()]
    found = student.predict(digits.take(positions), batch_size=7)
    torch.testing.assert_close(found.logits, logits, rtol=1e-6, atol=1e-6)
    assert student.class_names == digits.class_names
    assert found.labels == tuple(digits.class_names[index] for index in logits.argmax(-1).tolist())
    torch.testing.assert_close(found.probabilities, logits.softmax(-1))
    ordered = logits.sort(-1, descending=True).values
    torch.testing.assert_close(found.margins, ordered[:, 0] - ordered[:, 1])
    assert len(found) == len(ids)
    assert not any(module.training for module in student.module.modules())


def test_the_teacher_is_not_needed(tmp_path):
    run = digits_run(tmp_path)
    config = run / "config.yaml"
    assert "teacher.safetensors" in config.read_text()
    config.write_text(config.read_text().replace("teacher.safetensors", "gone.safetensors"))
    assert len(load_student(run).class_names) == 10


def test_the_weights_of_the_start_are_not_needed(tmp_path):
    encoder = tiny_encoder(tmp_path / "encoder")
    run = text_run(tmp_path, f"hf:{encoder}", pooling="pooler")
    before = load_student(run).predict(list(TEXTS.values()))
    (encoder / "model.safetensors").unlink()  # weights of the start; the architecture is in its config.json
    after = load_student(run).predict(list(TEXTS.values()))
    assert torch.equal(before.logits, after.logits)
    shutil.rmtree(encoder)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_student(run)


def test_texts_are_named_by_class(tmp_path):
    run = text_run(tmp_path)
    student = load_student(run)
    assert student.class_names == ("music", "pay", "weather")
    assert set(student.preprocess(["pay my bill"])) == {"input_ids", "attention_mask"}
    texts = [f"{text} {number}" for number in range(3) for text in TEXTS.values()]
    torch.testing.assert_close(student.predict(texts).logits, kept_logits(run)[0], rtol=1e-5, atol=1e-6)


def test_loading_leaves_the_random_state_alone(tmp_path):
    run = text_run(tmp_path, f"hf:{tiny_encoder(tmp_path / 'encoder')}", pooling="mean")
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    load_student(run)
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: shutil.rmtree(run), "expected a run directory or an exported student, found nothing"),
        (lambda run: (run / "config.yaml").unlink(), "found neither config.yaml nor a config.json of ours in it"),
        (lambda run: (run / "student.safetensors").unlink(), "student.safetensors: cannot be read: No such file"),
        (lambda run: (run / "student.safetensors").write_bytes(b"nothing"), "student.safetensors: .*damaged or not"),
        (lambda run: (run / "result.json").write_text("{"), "result.json: damaged or not what its suffix says"),
        (lambda run: rewrite(run / "student.safetensors", nudged), "damaged or replaced: expected weights with the"),
        (lambda run: rewrite(run / "student.safetensors", halved, keep_names=False), r"shape \(10, 16\), found \(5"),
        (lambda run: rename_classes(run, 9), "expected 9 classes as in the records of .*, found 10"),
    ],
)
def test_what_is_not_a_sound_run_is_refused_by_name(tmp_path, damage, message):
    run = digits_run(tmp_path)
    damage(run)
    with pytest.raises(InputError, match=message):
        load_student(run)


def nudged(tensors):
    tensors["fc.bias"][3] += 1e-6
    return tensors


def halved(tensors):
    return tensors | {"fc.weight": tensors["fc.weight"][:5].clone(), "fc.bias": tensors["fc.bias"][:5].clone()}


def rename_classes(run, count):
    path = run / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"class_names": [str(each) for each in range(count)]}))


def test_an_unfinished_run_names_the_command_that_finishes_it(tmp_path):
    run = digits_run(tmp_path)
    (run / "result.json").unlink()
    command = f"tpkd train {run / 'config.yaml'} output={run}"
    with pytest.raises(InputError, match="expected a finished run, found no result") as caught:
        load_student(run)
    assert f"`{command}` finishes it" in str(caught.value)
    subprocess.run([sys.executable, "-m", *command.split()], check=True, capture_output=True)
    assert read_run(run)[1].accuracy >= 0
    load_student(run)


def test_inputs_that_do_not_fit_are_refused(tmp_path):
    student = load_student(digits_run(tmp_path))
    with pytest.raises(InputError, match="inputs: do not fit builtin:mlp: inputs: expected 64 numbers"):
        student.predict(np.zeros((2, 9, 9), np.uint8))
    with pytest.raises(InputError, match=r"inputs\[1\]: expected finite logits, found NaN"):
        student.predict(np.array([[0.0] * 64, [np.nan] * 64]))


def test_importing_tpkd_does_not_load_it():
    code = "import sys, tpkd; assert 'tpkd.student' not in sys.modules and 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_its_libraries_missing_is_one_line_that_names_the_extra():
    code = "import sys; sys.modules['pydantic'] = None; import tpkd; tpkd.load_student"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "InputError: pydantic is not installed: pip install 'tpkd[train]'" in result.stderr


def test_an_mlp_that_took_its_input_size_from_vectors(tmp_path):
    generator = np.random.default_rng(0)
    centres = 3 * generator.normal(size=(3, 11))
    for split, count in (("train", 60), ("test", 30)):
        labels = generator.integers(0, 3, count)
        features = (centres[labels] + generator.normal(size=(count, 11))).astype(np.float32)
        np.savez(tmp_path / f"{split}.npz", features=features, labels=labels)
    config = resolve_config(
        {
            "output": str(tmp_path / "run"),
            "data": {"name": f"vector:{tmp_path}"},
            "student": {"model": "builtin:mlp", "options": {"hidden": []}},
            "objective": "ce",
            "optimizer": {"name": "sgd", "learning_rate": 0.1},
            "epochs": 3,
            "tensorboard": False,
            "device": "cpu",
        }
    )
    result = train(config)
    student = load_student(tmp_path / "run")
    correct = student.predict(features).indices.numpy() == labels
    assert correct.mean() == pytest.approx(result.accuracy)
