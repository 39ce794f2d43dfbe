"""Answers are scored from logits, kept in little space, and read back only if nothing has changed."""

from dataclasses import replace

import numpy as np
import pytest

from quality.cases import answers_of, logits_of
from tpkd.arrays import open_array
from tpkd.errors import InputError
from tpkd.files import sha256
from tpkd.quality import answers as module
from tpkd.quality.answers import answer_files, keep_answers, read_answers, score_answers
from tpkd.quality.record import QualityRecord


def test_scores_are_means_over_all_rows(monkeypatch, tmp_path):
    logits, labels = logits_of(3, rows=50)
    np.save(tmp_path / "logits.npy", logits.astype(np.float32))
    whole = score_answers(open_array(tmp_path / "logits.npy"), labels)
    monkeypatch.setattr(module, "_BLOCK_NUMBERS", 28)  # seven rows at a time
    assert score_answers(open_array(tmp_path / "logits.npy"), labels).quality == whole.quality
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    quality = whole.quality
    # float32 in the file
    assert quality.log_loss == pytest.approx(-np.log(probs[np.arange(50), labels]).mean(), rel=1e-5)
    assert quality.brier_score == pytest.approx(np.square(probs - np.eye(4)[labels]).sum(-1).mean(), rel=1e-5)
    assert quality.confidence == pytest.approx(probs.max(-1).mean(), rel=1e-5)
    assert quality.accuracy == np.mean(whole.predictions == labels) == whole.correct.mean()
    assert (quality.examples, quality.num_classes, len(quality.reliability)) == (50, 4, 15)
    assert quality.risk[-1] == pytest.approx(1 - quality.accuracy)


def test_a_label_without_probability_has_no_mean_loss(tmp_path):
    np.save(tmp_path / "logits.npy", np.array([[0.0, -np.inf, 0.0], [1.0, 0.0, 0.0]]))
    assert score_answers(open_array(tmp_path / "logits.npy"), np.array([1, 0])).quality.log_loss is None


def test_logits_without_probabilities_are_refused(tmp_path):
    for value in (np.nan, np.inf):
        np.save(tmp_path / "logits.npy", np.array([[0.0, 1.0], [value, 0.0]]))
        with pytest.raises(InputError, match=r"logits\.npy: row 1: expected logits that give probabilities"):
            score_answers(open_array(tmp_path / "logits.npy"), np.array([1, 0]))


def test_other_labels_are_refused(tmp_path):
    np.save(tmp_path / "logits.npy", np.zeros((3, 4)))
    with pytest.raises(InputError, match=r"logits\.npy: expected 2 rows as there are labels, found 3"):
        score_answers(open_array(tmp_path / "logits.npy"), np.array([0, 1]))


@pytest.mark.parametrize(("classes", "width"), [(4, 1), (300, 2)])
def test_answers_read_back_from_a_small_file(tmp_path, classes, width):
    made = answers_of(5, rows=600, classes=classes)
    keep_answers(made, tmp_path / "answers" / "ce-42")
    found = read_answers(tmp_path / "answers" / "ce-42")
    assert np.array_equal(found.predictions, made.predictions)
    assert np.array_equal(found.labels, made.labels)
    assert found.quality.risk_coverage_area == made.quality.risk_coverage_area
    path = answer_files(tmp_path / "answers" / "ce-42")[1]
    assert path.stat().st_size < 2 * 600 * width + 1000
    assert np.load(path)["predictions"].dtype.itemsize == width


def test_the_same_answers_are_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        keep_answers(answers_of(5), tmp_path / name)
    for first, second in zip(answer_files(tmp_path / "a"), answer_files(tmp_path / "b"), strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_nothing_kept_is_nothing_found(tmp_path):
    assert read_answers(tmp_path / "ce-42") is None


def test_changed_or_missing_answers_are_refused(tmp_path):
    stem = tmp_path / "ce-42"
    keep_answers(answers_of(5), stem)
    record, arrays = answer_files(stem)
    changed = bytearray(arrays.read_bytes())
    changed[-200] ^= 1
    arrays.write_bytes(changed)
    with pytest.raises(InputError, match=r"ce-42\.npz: expected SHA-256 \w+ as in ce-42\.json, found"):
        read_answers(stem)
    arrays.unlink()
    with pytest.raises(InputError, match=r"ce-42\.npz: cannot be read"):
        read_answers(stem)
    record.write_text("{}")
    with pytest.raises(InputError, match=r"ce-42\.json: damaged"):
        read_answers(stem)


def test_a_record_with_other_curves_is_refused(tmp_path):
    stem = tmp_path / "ce-42"
    keep_answers(answers_of(5), stem)
    record = answer_files(stem)[0]
    kept = QualityRecord.from_json(record.read_text())
    for fields in ({"risk": kept.risk[1:]}, {"reliability": kept.reliability[:3]}):
        record.write_text(replace(kept, **fields).to_json())
        with pytest.raises(InputError, match=r"ce-42\.json: expected 15 bins and 50 points of a curve"):
            read_answers(stem)


def test_answers_of_other_classes_are_refused_even_with_the_right_checksum(tmp_path):
    stem = tmp_path / "ce-42"
    made = answers_of(5)
    keep_answers(made, stem)
    record, arrays = answer_files(stem)
    for fields in ({"num_classes": 2}, {"examples": 59}):
        record.write_text(replace(made.quality, answers_sha256=sha256(arrays), **fields).to_json())
        with pytest.raises(InputError, match=r"ce-42\.npz: expected \d+ classes below \d, found others"):
            read_answers(stem)
