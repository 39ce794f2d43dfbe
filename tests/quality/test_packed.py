"""Packed scores: what comes back is what went in, within half a step; the file is small, and damage is refused."""

import zipfile

import numpy as np
import pytest

from tpkd.errors import InputError
from tpkd.quality.packed import SQUARES, STEP, read_packed, stack_scores, write_packed
from tpkd.quality.scores import score_rows
from tpkd.quality.temperature import fit_temperature, losses_at


def examples(rows=200, classes=12, seeds=(42, 43, 44), scale=3.0):
    """Logits of several seeds of one method: alike for each example."""
    random = np.random.default_rng(0)
    labels = random.integers(classes, size=rows)
    common = random.normal(size=(rows, classes)) * scale
    common[np.arange(rows), labels] += scale
    return labels, {seed: common + random.normal(size=common.shape) for seed in seeds}


def scored(labels, logits):
    found = {}
    for seed, each in logits.items():
        temperature = fit_temperature(each[:50], labels[:50])
        found[seed] = (score_rows(each, labels), temperature, losses_at(each, labels, temperature))
    return stack_scores(found)


def through_a_file(tmp_path, scores, labels):
    write_packed(tmp_path / "tpkd.npz", scores, labels)
    return read_packed(tmp_path / "tpkd.npz", labels)


@pytest.mark.parametrize("scale", [0.1, 3.0, 40.0])
def test_every_value_comes_back_within_half_a_step(tmp_path, scale):
    labels, logits = examples(scale=scale)
    scores = scored(labels, logits)
    read = through_a_file(tmp_path, scores, labels)
    assert read.seeds == scores.seeds
    np.testing.assert_array_equal(read.predictions, scores.predictions)
    np.testing.assert_array_equal(read.temperatures, scores.temperatures)
    half = STEP / 2 + 1e-9  # rounding of the value itself
    # A loss or a log-probability moves by no more than its log-odds; a margin is a sum of two rounded numbers.
    for name, within in (
        ("log_misses", half),
        ("log_losses", 2 * half),
        ("margins", 2 * half),
        ("fitted_losses", half),
    ):
        np.testing.assert_allclose(getattr(read, name), getattr(scores, name), rtol=0, atol=within, err_msg=name)
    others = np.exp(scores.log_misses)
    # d(p^2 + s (1-p)^2) <= 2 max(p, 1-p) dp + ds (1-p)^2, with dp <= p (1-p) STEP/2 and ds <= 1/128
    bound = 2 * others * (1 - others) * half + np.square(others) / (2 * SQUARES) + 1e-9
    assert (np.abs(read.squares - scores.squares) <= 1.1 * bound).all()


def test_means_are_closer_than_single_values(tmp_path):
    """Rounding errors have no sign, so that a table computed from packed scores has its digits."""
    labels, logits = examples(rows=4000, classes=50, seeds=(1, 2))
    scores = scored(labels, logits)
    read = through_a_file(tmp_path, scores, labels)
    for name in ("log_losses", "fitted_losses", "squares"):
        # five standard errors of independent rounding, or less
        bound = 5 * STEP / np.sqrt(12 * 4000)
        np.testing.assert_allclose(getattr(read, name).mean(1), getattr(scores, name).mean(1), rtol=0, atol=bound)


def test_right_and_wrong_answers_are_told_by_their_margins(tmp_path):
    labels, logits = examples()
    read = through_a_file(tmp_path, scored(labels, logits), labels)
    right = read.predictions == labels
    assert 0.1 < right.mean() < 0.99
    assert (read.margins[right] >= 0).all()
    assert (read.margins[~right] <= 0).all()


def test_a_method_without_validation_has_no_fitted_losses(tmp_path):
    labels, logits = examples(seeds=(7, 8))
    both = scored(labels, logits)
    rows = {seed: (score_rows(each, labels), None, None) for seed, each in logits.items()}
    read = through_a_file(tmp_path, stack_scores(rows), labels)
    assert np.isnan(read.fitted_losses).all()
    assert np.isnan(read.temperatures).all()
    np.testing.assert_array_equal(read.predictions, both.predictions)


def test_certainty_is_kept_as_far_as_it_goes(tmp_path):
    labels = np.array([0, 1])
    logits = np.array([[2000.0, 0.0, -5.0], [100.0, 0.0, 0.0]])
    rows = score_rows(logits, labels)
    losses = losses_at(logits, labels, 1.0)
    read = through_a_file(tmp_path, stack_scores({1: (rows, 1.0, losses)}), labels)
    assert read.log_losses[0, 0] < 1e-100
    assert read.log_losses[0, 1] == pytest.approx(100.0)
    assert read.fitted_losses[0].tolist() == pytest.approx([0.0, 100.0])
    assert read.squares[0].tolist() == [1.0, 1.0]


def test_the_same_scores_give_the_same_bytes_of_which_there_are_few(tmp_path):
    labels, logits = examples(rows=1000, classes=150, seeds=tuple(range(30)))
    scores = scored(labels, logits)
    write_packed(tmp_path / "one.npz", scores, labels)
    write_packed(tmp_path / "two.npz", read_packed(tmp_path / "one.npz", labels), labels)
    first, second = ((tmp_path / name).read_bytes() for name in ("one.npz", "two.npz"))
    assert first == second  # a second time nothing is rounded away
    assert len(first) < 5 * 30 * 1000


def test_damage_is_refused(tmp_path):
    labels, logits = examples()
    write_packed(tmp_path / "tpkd.npz", scored(labels, logits), labels)
    with pytest.raises(InputError, match=r"predictions: expected bytes of shape \(199, 4\), found \(200, 4\)"):
        read_packed(tmp_path / "tpkd.npz", labels[1:])
    with zipfile.ZipFile(tmp_path / "tpkd.npz") as archive, zipfile.ZipFile(tmp_path / "less.npz", "w") as less:
        for name in archive.namelist():
            if name != "odds.npy":
                less.writestr(name, archive.read(name))
    with pytest.raises(InputError, match="odds"):
        read_packed(tmp_path / "less.npz", labels)
