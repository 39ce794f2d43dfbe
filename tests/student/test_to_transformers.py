"""transformers loads a text student in a process without tpkd, with the same predictions and class names."""

import json

import pytest
import torch

from student.fresh import run_fresh
from student.runs import TEXTS, TINY_BERT, text_run, tiny_encoder
from tpkd.errors import InputError
from tpkd.student import to_transformers
from tpkd.student.checks import MismatchError
from tpkd.student.exporting import export_student
from tpkd.student.loading import load_student

LOAD = """
import json, sys, torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1]).eval()
"""
FROM_TEXTS = """
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
inputs = tokenizer(json.loads(sys.argv[2]), padding="max_length", truncation=True, return_tensors="pt")
"""
FROM_IDS = """
inputs = {name: torch.tensor(rows) for name, rows in json.loads(sys.argv[2]).items()}
"""
SAY = """
with torch.no_grad():
    logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
names = model.config.id2label
print(json.dumps({"logits": logits.tolist(), "names": [names[each] for each in sorted(names)],
                  "kind": type(model).__name__, "labels": [names[int(each)] for each in logits.argmax(-1)]}))
"""


def test_an_encoder_comes_back_with_its_tokenizer_and_class_names(tmp_path):
    encoder = tiny_encoder(tmp_path / "encoder")
    run = text_run(tmp_path, f"hf:{encoder}", pooling="pooler")
    export_student(run, tmp_path / "out", "hf")
    texts = [*TEXTS.values(), " ".join(["pay"] * 30)]  # the last is cut where the student cuts it
    found = run_fresh(LOAD + FROM_TEXTS + SAY, tmp_path / "out", json.dumps(texts))
    student = load_student(run)
    expected = student.predict(texts)
    torch.testing.assert_close(torch.tensor(found["logits"]), expected.logits, rtol=1e-5, atol=1e-5)
    assert found["names"] == list(student.class_names)
    assert tuple(found["labels"]) == expected.labels
    for path in (tmp_path / "out").glob("*.json"):
        assert str(tmp_path) not in path.read_text()


def test_our_own_bert_comes_back_as_bert_for_sequence_classification(tmp_path):
    run = text_run(tmp_path)
    notes = export_student(run, tmp_path / "out", "hf")
    student = load_student(run)
    inputs = student.preprocess(list(TEXTS.values()))
    rows = {name: value.tolist() for name, value in inputs.items()}
    found = run_fresh(LOAD + FROM_IDS + SAY, tmp_path / "out", json.dumps(rows))
    expected = student.predict(list(TEXTS.values()))
    torch.testing.assert_close(torch.tensor(found["logits"]), expected.logits, rtol=1e-5, atol=1e-5)
    assert found["kind"] == "BertForSequenceClassification"
    assert found["names"] == list(student.class_names)
    assert "no tokenizer of that library" in notes[0]
    assert notes[0] in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (None, {**TINY_BERT, "pooling": "mean"}, "takes the mean over tokens.*"),
        ("bert", {"pooling": "mean"}, "takes the mean over tokens"),
        ("roberta", {"pooling": "pooler"}, "ours is one linear layer on the pooler"),
    ],
)
def test_a_head_that_the_library_does_not_have_is_refused(tmp_path, kind, options, message):
    model = "builtin:bert" if kind is None else f"hf:{tiny_encoder(tmp_path / 'encoder', kind)}"
    run = text_run(tmp_path, model, **options)
    with pytest.raises(InputError, match=f"has no classifier with this head; use onnx or safetensors .*{message}"):
        export_student(run, tmp_path / "out", "hf")
    assert not (tmp_path / "out").exists()


def test_other_logits_are_not_published(tmp_path, monkeypatch):
    real = to_transformers._sequence_classifier

    def other(student, network):
        model = real(student, network)
        with torch.no_grad():
            model.classifier.bias[1] += 1e-3
        return model

    monkeypatch.setattr(to_transformers, "_sequence_classifier", other)
    with pytest.raises(MismatchError, match="transformers: expected the student's logits within 1e-05"):
        export_student(text_run(tmp_path), tmp_path / "out", "hf")
    assert not (tmp_path / "out").exists()
