"""Samples of a gallery: those of the logits, in their order, and readable whatever they hold."""

import json

import numpy as np
import pytest
from PIL import Image

from tpkd.audit.samples import LONGEST_TEXT, Samples, open_samples, readable
from tpkd.data import load_dataset
from tpkd.data.dataset import Dataset
from tpkd.errors import InputError

LABELS = np.array([0, 1, 0])


def texts(*inputs, ids=(5, 6, 7)):
    return Dataset("toy", "test", "text", inputs, LABELS, np.array(ids), ("x", "y"))


def test_halves_of_characters_become_a_sign_that_files_can_hold():
    assert readable("a\ud83db") == "a\ufffdb"
    assert readable("é\U0001f600\u202e") == "é\U0001f600\u202e"
    readable("\udfff").encode()


def test_texts_are_shown_in_order_and_cut(tmp_path):
    samples = open_samples(texts("one", "two", "x" * 10_000), None, LABELS, ignored=-100)
    shown = samples.shown(np.array([1, 2]), 255)
    assert shown[0] == "two"
    assert len(shown[1]) == LONGEST_TEXT
    assert samples.name(0) == "5"


def test_names_are_given_or_those_of_the_data_or_row_numbers(tmp_path):
    (tmp_path / "ids.json").write_text(json.dumps(["a", "b\ud800", "c"]))
    named = open_samples(texts("1", "2", "3"), tmp_path / "ids.json", LABELS, ignored=-100)
    assert named.names == ("a", "b\ufffd", "c")
    assert open_samples(texts("1", "2", "3", ids=(0, 1, 2)), None, LABELS, ignored=-100).names is None
    assert open_samples(None, None, LABELS, ignored=-100).name(2) == "2"


def test_samples_of_another_size_are_refused():
    with pytest.raises(InputError, match=r"toy \(test\): expected 2 samples as there are logits, found 3"):
        open_samples(texts("1", "2", "3"), None, LABELS[:2], ignored=-100)


def test_samples_in_another_order_are_refused_by_row():
    with pytest.raises(InputError, match=r"row 1: expected label 0 as in the labels, found 1: the logits are of other"):
        open_samples(texts("1", "2", "3"), None, np.array([0, 0, 0]), ignored=-100)
    assert open_samples(texts("1", "2", "3"), None, np.array([0, -100, 0]), ignored=-100).kind == "text"


def test_the_digits_are_bright():
    digits = load_dataset("digits", "test")
    samples = open_samples(digits, None, digits.labels, ignored=-100)
    assert samples.brightest == 16
    assert samples.kind == "image"
    assert samples.shown(np.array([0]), 16)[0].startswith("data:image/png;base64,")


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "images" / "train" / "a"
    place.mkdir(parents=True)
    (tmp_path / "images" / "train" / "b").mkdir()
    Image.new("RGB", (40, 20), "red").save(place / "1 good.png")
    (place / "2 text.png").write_text("<svg onload=alert(1)>")
    (place / "3 cut.png").write_bytes((place / "1 good.png").read_bytes()[:40])
    Image.new("RGB", (4, 4)).save(tmp_path / "images" / "train" / "b" / "<img onerror=x>.png")
    return load_dataset(f"folder:{tmp_path / 'images'}", "train")


def test_files_that_are_no_images_leave_a_gap_and_are_counted(folder):
    samples = open_samples(folder, None, folder.labels, ignored=-100)
    shown = samples.shown(np.arange(4), 255)
    assert [value is None for value in shown] == [False, True, True, False]
    assert samples.undecodable == 2
    assert samples.name(3).endswith("<img onerror=x>.png")
    assert samples.path(0).is_file()


def test_vectors_have_names_alone():
    vectors = Dataset("toy", "test", "vector", np.zeros((3, 4), np.float32), LABELS, np.arange(3), ("x", "y"))
    samples = Samples(vectors, None)
    assert samples.kind == "none"
    assert samples.shown(np.arange(3), 255) == [None] * 3
