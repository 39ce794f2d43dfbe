"""Scores of every test example for every seed of a method, packed into a small file that NumPy alone can open.

What one column implies about another is not stored twice: where an answer is right, its probability is that of the
label; where it is wrong, the least margin gives the label's probability. The rest are whole multiples of 1/32 nat,
stored per example as differences from the median over seeds.
"""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, Shaped

from tpkd.arrays import read_npz
from tpkd.errors import InputError
from tpkd.files import reading, write_file
from tpkd.quality.scores import RowScores

STEP = 1 / 32
"""Of log-odds, margins and log-odds at the fitted temperature, in nats: values are off by at most half of it."""
SQUARES = 64
"""Steps of the squared probabilities of the other classes, between none and all of them in one class."""
MAX_BYTES = 1 << 28
"""Of an unpacked column."""
_LARGEST = 8000
_NO_SQUARES = 1e-5
"""Where all other classes together have less probability than this, the sum of their squares is taken as zero."""
_COLUMNS = ("predictions", "odds", "gaps", "squares", "fitted")


@dataclass(frozen=True)
class ExampleScores:
    """Scores of the same test examples by one network per seed."""

    seeds: tuple[int, ...]
    predictions: Int[np.ndarray, "seeds rows"]
    log_misses: Float[np.ndarray, "seeds rows"]
    """log(1 - p_max)."""
    log_losses: Float[np.ndarray, "seeds rows"]
    """-log p_y."""
    margins: Float[np.ndarray, "seeds rows"]
    """The logit of the label minus the largest other one."""
    squares: Float[np.ndarray, "seeds rows"]
    """Sum of the squared probabilities."""
    temperatures: Float[np.ndarray, " seeds"]
    """Fitted on validation samples; NaN where there were none."""
    fitted_losses: Float[np.ndarray, "seeds rows"]
    """-log p_y at that temperature; NaN without one."""

    def of_seed(self, seed: int) -> RowScores:
        """The scores of one network."""
        place = self.seeds.index(seed)
        columns = (self.predictions, self.log_misses, self.log_losses, self.margins, self.squares)
        return RowScores(*(column[place] for column in columns))


def write_packed(path: Path, scores: ExampleScores, labels: Int[np.ndarray, " rows"]) -> None:
    """Pack scores into a `.npz`: the same scores give the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in pack(scores, labels).items():
            member = zipfile.ZipInfo(f"{name}.npy")  # of 1980, whenever it is written
            member.compress_type = zipfile.ZIP_DEFLATED
            data = io.BytesIO()
            np.lib.format.write_array(data, array, allow_pickle=False)
            archive.writestr(member, data.getvalue(), compresslevel=9)
    write_file(path, content.getvalue())


def read_packed(path: str | Path, labels: Int[np.ndarray, " rows"]) -> ExampleScores:
    """The scores in a file that `write_packed` wrote.

    Args:
        path: the file.
        labels: of the test examples, in order.

    Raises:
        InputError: the file is damaged, or about another number of examples.

    Example:
        >>> import tempfile
        >>> from tpkd.quality.scores import score_rows
        >>> labels = np.array([0, 1])
        >>> rows = score_rows(np.log([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]), labels)
        >>> path = Path(tempfile.mkdtemp()) / "ce.npz"
        >>> write_packed(path, stack_scores({42: (rows, 1.0, rows.log_losses)}), labels)
        >>> read = read_packed(path, labels)
        >>> read.seeds, read.predictions.tolist(), np.exp(read.log_misses).round(2).tolist()
        ((42,), [[0, 2]], [[0.5, 0.2]])
    """
    path = Path(path)
    with reading(path):
        names = ["seeds", "temperatures", *_COLUMNS]
        seeds, temperatures, *columns = read_npz(path, names, limit=MAX_BYTES)
        expected = (len(labels), 1 + len(seeds))
        for name, column in zip(_COLUMNS, columns, strict=True):
            if column.dtype != np.uint8 or column.ndim != 3 or column.shape[1:] != expected or len(column) > 4:
                raise InputError(f"{path}: {name}: expected bytes of shape {expected}, found {column.shape[1:]}")
        return unpack(dict(zip(names, (seeds, temperatures, *columns), strict=True)), labels)


def stack_scores(
    by_seed: Mapping[int, tuple[RowScores, float | None, Float[np.ndarray, " rows"] | None]],
) -> ExampleScores:
    """Scores of one method: seed -> its scores, the fitted temperature and the losses at that temperature."""
    seeds = tuple(sorted(by_seed))
    rows = [by_seed[seed][0] for seed in seeds]
    missing = np.full(rows[0].log_losses.shape, np.nan)
    fitted = [by_seed[seed][1:] for seed in seeds]
    return ExampleScores(
        seeds=seeds,
        predictions=np.stack([each.predictions for each in rows]),
        log_misses=np.stack([each.log_misses for each in rows]),
        log_losses=np.stack([each.log_losses for each in rows]),
        margins=np.stack([each.margins for each in rows]),
        squares=np.stack([each.squares for each in rows]),
        temperatures=np.array([np.nan if temperature is None else temperature for temperature, _ in fitted]),
        fitted_losses=np.stack([missing if losses is None else losses for _, losses in fitted]),
    )


def pack(scores: ExampleScores, labels: Int[np.ndarray, " rows"]) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Arrays of small integers, from which `unpack` gives the scores back within the steps above."""
    right = scores.predictions == labels
    misses = np.maximum(scores.log_misses, -_LARGEST * STEP)
    top = np.log(-np.expm1(misses))  # log p_max
    odds = _steps(top - misses)
    gaps = _steps(np.maximum(np.where(right, scores.margins - (top - misses), -scores.margins), 0.0))
    others = np.exp(misses)
    share = (scores.squares - np.square(np.exp(top))) / np.square(np.maximum(others, _NO_SQUARES))
    squares = np.where(others < _NO_SQUARES, 0, np.clip(np.round(SQUARES * share), 0, SQUARES)).astype(np.int64)
    temperatures = np.where(np.isnan(scores.temperatures), 0.0, scores.temperatures)
    with np.errstate(divide="ignore"):  # a loss of exactly zero
        fitted_odds = _steps(-np.log(np.expm1(np.nan_to_num(scores.fitted_losses, nan=1.0))))
    fitted = fitted_odds - _expected(odds, gaps, right, temperatures)
    fitted[temperatures == 0] = 0
    columns = (scores.predictions, odds, gaps, squares, fitted)
    return {
        "seeds": np.asarray(scores.seeds, dtype=np.int64),
        "temperatures": temperatures,
        **{name: _planes(column) for name, column in zip(_COLUMNS, columns, strict=True)},
    }


def unpack(arrays: Mapping[str, np.ndarray], labels: Int[np.ndarray, " rows"]) -> ExampleScores:
    """The scores from the arrays that `pack` made."""
    predictions, odds, gaps, squares, fitted = (_from_planes(arrays[name]) for name in _COLUMNS)
    temperatures = arrays["temperatures"]
    right = predictions == labels
    log_odds, gap = odds * STEP, gaps * STEP
    top, miss = -np.logaddexp(0, -log_odds), -np.logaddexp(0, log_odds)
    known = temperatures > 0
    fitted_odds = (fitted + _expected(odds, gaps, right, temperatures)) * STEP
    return ExampleScores(
        tuple(arrays["seeds"].tolist()),
        predictions,
        miss,
        np.where(right, -top, gap - top),
        np.where(right, log_odds + gap, -gap),
        np.exp(2 * top) + squares / SQUARES * np.exp(2 * miss),
        np.where(known, temperatures, np.nan),
        np.where(known[:, None], np.logaddexp(0, -fitted_odds), np.nan),
    )


def _steps(values: Float[np.ndarray, "seeds rows"]) -> Int[np.ndarray, "seeds rows"]:
    return np.clip(np.round(values / STEP), -_LARGEST, _LARGEST).astype(np.int64)


def _expected(
    odds: Int[np.ndarray, "seeds rows"],
    gaps: Int[np.ndarray, "seeds rows"],
    right: Shaped[np.ndarray, "seeds rows"],
    temperatures: Float[np.ndarray, " seeds"],
) -> Int[np.ndarray, "seeds rows"]:
    """A guess of the label's log-odds at the fitted temperature, in whole numbers, so that all machines agree on it."""
    scaled = np.maximum(np.round(256 * temperatures), 1).astype(np.int64)[:, None]
    return np.asarray(256 * np.where(right, odds, -gaps) // scaled)


def _planes(values: Int[np.ndarray, "seeds rows"]) -> Shaped[np.ndarray, "planes rows numbers"]:
    """Per example the median over seeds and the differences from it, as bytes, low ones first.

    The seeds of an example stand together: they are alike, and deflate finds that.
    """
    by_row = values.T
    middle = np.sort(by_row, axis=1)[:, by_row.shape[1] // 2 :][:, :1]
    signed = np.concatenate([middle, by_row - middle], axis=1)
    numbers = np.where(signed >= 0, 2 * signed, -2 * signed - 1)
    planes = max(1, (int(numbers.max()).bit_length() + 7) // 8)
    return np.stack([numbers >> 8 * plane & 255 for plane in range(planes)]).astype(np.uint8)


def _from_planes(planes: Shaped[np.ndarray, "planes rows numbers"]) -> Int[np.ndarray, "seeds rows"]:
    numbers = sum(plane.astype(np.int64) << 8 * place for place, plane in enumerate(planes))
    signed = np.where(numbers % 2 == 0, numbers // 2, -(numbers // 2) - 1)
    return np.asarray((signed[:, 1:] + signed[:, :1]).T)
