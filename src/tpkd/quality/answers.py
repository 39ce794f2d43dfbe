"""The answers of a network on the test split: scored from its logits, kept in a small file, read back."""

import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int

from tpkd.arrays import ArrayFile, read_npz
from tpkd.errors import InputError
from tpkd.files import read_parsed, reading, sha256, write_file
from tpkd.quality.record import QualityRecord
from tpkd.quality.scores import (
    BINS,
    CURVE_POINTS,
    RowScores,
    calibration_error,
    expected_errors,
    reliability,
    risk_coverage_area,
    risk_curve,
    score_rows,
)

MAX_BYTES = 1 << 30
"""Of the predictions or the labels in a file of answers."""
_AGAIN = "delete it and its .json or .npz, and `tpkd compare` scores the run's test logits again"
_BLOCK_NUMBERS = 1 << 22
"""Logits that are scored at a time, which bounds the memory of a large test split."""


@dataclass(frozen=True)
class Answers:
    """The class that a network gave for each example, the labels, and the scores of its probabilities."""

    predictions: Int[np.ndarray, " rows"]
    labels: Int[np.ndarray, " rows"]
    quality: QualityRecord

    @property
    def correct(self) -> np.ndarray:
        """1.0 where the answer is the label, else 0.0."""
        return np.asarray(self.predictions == self.labels, dtype=np.float64)


def score_answers(logits: ArrayFile, labels: Int[np.ndarray, " rows"], *, logits_sha256: str | None = None) -> Answers:
    """Score the logits of a file against the labels of its rows.

    Raises:
        InputError: the file is damaged, or has another number of rows than there are labels.
    """
    rows, num_classes = logits.shape
    if rows != len(labels) or rows < 1:
        raise InputError(f"{logits.path}: expected {len(labels)} rows as there are labels, found {rows}")
    parts, done = [], 0
    for block in logits.blocks(max(1, _BLOCK_NUMBERS // num_classes)):
        parts.append(score_rows(block.float().numpy(), labels[done : done + len(block)]))
        done += len(block)
    fields = RowScores.__dataclass_fields__
    scores = RowScores(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in fields})
    confidences = scores.confidences
    if not np.isfinite(confidences).all():
        first = int(np.flatnonzero(~np.isfinite(confidences))[0])
        raise InputError(f"{logits.path}: row {first}: expected logits that give probabilities, found NaN or infinity")
    correct = (scores.predictions == labels).astype(np.float64)
    errors, bins = expected_errors(confidences, correct), reliability(confidences, correct)
    coverage, risk = risk_curve(errors)
    log_loss = float(scores.log_losses.mean())
    quality = QualityRecord(
        logits_sha256=logits_sha256,
        answers_sha256=None,
        examples=rows,
        num_classes=num_classes,
        accuracy=float(correct.mean()),
        log_loss=log_loss if np.isfinite(log_loss) else None,
        brier_score=float(scores.brier.mean()),
        confidence=float(confidences.mean()),
        calibration_error=calibration_error(bins),
        risk_coverage_area=risk_coverage_area(errors),
        reliability=bins,
        coverage=coverage,
        risk=risk,
    )
    return Answers(scores.predictions, labels, quality)


def answer_files(stem: Path) -> tuple[Path, Path]:
    """Paths of the scores of a network and of its answers.

    Example:
        >>> [path.name for path in answer_files(Path("answers/ce-42"))]
        ['ce-42.json', 'ce-42.npz']
    """
    return stem.with_name(f"{stem.name}.json"), stem.with_name(f"{stem.name}.npz")


def keep_answers(answers: Answers, stem: Path) -> None:
    """Write the answers and then the scores, which carry the checksum of the answers."""
    record, arrays = answer_files(stem)
    kind = np.min_scalar_type(answers.quality.num_classes - 1)
    content = io.BytesIO()
    np.savez(content, predictions=answers.predictions.astype(kind), labels=answers.labels.astype(kind))
    write_file(arrays, content.getvalue())
    write_file(record, replace(answers.quality, answers_sha256=sha256(arrays)).to_json())


def read_answers(stem: Path) -> Answers | None:
    """What `keep_answers` wrote; None where there is nothing.

    Raises:
        InputError: a file is missing or damaged, or the two do not belong together.
    """
    path, arrays = answer_files(stem)
    quality = read_parsed(path, QualityRecord.from_json)
    if quality is None:
        return None
    found = sha256(arrays)
    if found != quality.answers_sha256:
        raise InputError(
            f"{arrays}: expected SHA-256 {quality.answers_sha256} as in {path.name}, found {found}; {_AGAIN}"
        )
    with reading(arrays):
        predictions, labels = (
            array.astype(np.int64) for array in read_npz(arrays, ["predictions", "labels"], limit=MAX_BYTES)
        )
    inside = [
        array.shape == (quality.examples,) and array.min() >= 0 and array.max() < quality.num_classes
        for array in (predictions, labels)
    ]
    if not all(inside):
        raise InputError(f"{arrays}: expected {quality.examples} classes below {quality.num_classes}, found others")
    sizes = (len(quality.reliability), len(quality.coverage), len(quality.risk))
    points = min(CURVE_POINTS, quality.examples)
    if sizes != (BINS, points, points):
        raise InputError(f"{path}: expected {BINS} bins and {points} points of a curve, found {sizes}; {_AGAIN}")
    return Answers(predictions, labels, quality)
