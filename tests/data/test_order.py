from itertools import pairwise

import numpy as np
import pytest

from tpkd.data.order import SampleOrder, choose_views, hash_words, uniform_integers, uniform_reals

MASK = 2**64 - 1


def splitmix64(state):
    """The published algorithm in whole numbers of Python."""
    x = (state + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def chained(*words):
    state = 0
    for word in words:
        state = splitmix64(state ^ (word & MASK))
    return state


def test_the_hash_of_one_word_is_the_published_splitmix64():
    """The first outputs of the reference generator from the state 1234567, as its documentation lists them."""
    states = [(1234567 + k * 0x9E3779B97F4A7C15) & MASK for k in range(3)]
    assert hash_words(np.array(states, np.uint64)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_the_hash_is_a_chain_of_splitmix64():
    words = np.random.default_rng(0).integers(-(2**63), 2**63, (4, 500))
    assert hash_words(*words).tolist() == [chained(*map(int, column)) for column in words.T]
    assert hash_words(-3, 2**64 - 1).tolist() == [chained(-3, -1)]


def test_order_and_views_sort_and_scale_the_hash():
    """The documented rule, in whole numbers of Python."""
    ranked = sorted(range(50), key=lambda position: chained(1, 42, 3, position))
    assert SampleOrder(42, 50).positions(100, 150)[0].tolist() == ranked
    views = [(chained(2, 42, 3, sample) >> 32) * 8 >> 32 for sample in range(50)]
    assert choose_views(42, 3, np.arange(50), 8).tolist() == views


def test_golden_order_and_views():
    """These values are promises: a run resumed by a later release must go on in the same order."""
    positions, epochs = SampleOrder(42, 10).positions(5, 16)
    assert positions.tolist() == [8, 6, 7, 3, 5, 7, 1, 0, 4, 8, 6]
    assert epochs.tolist() == [1] * 5 + [2] * 6
    assert choose_views(42, [1, 1, 2, 2], [0, 17999, 0, 17999], 8).tolist() == [5, 2, 3, 0]
    assert choose_views(43, 60, np.array([2**63 - 1]), 8).tolist() == [7]


@pytest.mark.parametrize("length", [1, 2, 7, 64, 1000])
def test_every_epoch_is_a_permutation(length):
    order = SampleOrder(0, length)
    for epoch in (1, 2, 60):
        positions, epochs = order.positions((epoch - 1) * length, epoch * length)
        assert sorted(positions.tolist()) == list(range(length))
        assert (epochs == epoch).all()


def test_any_cut_of_the_sequence_gives_the_same_samples():
    """A batch is a slice of one endless sequence: cut anywhere, resumed by another object, across epochs."""
    whole = [part.tolist() for part in SampleOrder(3, 18).positions(0, 100)]
    cuts = [0, 1, 17, 18, 19, 50, 54, 99, 100]
    pieces = [SampleOrder(3, 18).positions(start, stop) for start, stop in pairwise(cuts)]
    assert [np.concatenate(parts).tolist() for parts in zip(*pieces, strict=True)] == whole
    assert [part.tolist() for part in SampleOrder(3, 18).positions(30, 30)] == [[], []]


def test_far_cursors_are_read_at_once():
    positions, epochs = SampleOrder(1, 50_000).positions(10**15, 10**15 + 64)
    assert (epochs == 10**15 // 50_000 + 1).all()
    assert len(np.unique(positions)) == 64


def test_epochs_and_seeds_have_unrelated_orders():
    n = 2000
    orders = [SampleOrder(seed, n).positions(epoch * n, (epoch + 1) * n)[0] for seed in (0, 1, 42) for epoch in (0, 1)]
    for index, first in enumerate(orders):
        for second in orders[:index]:
            # Two random orders correlate by N(0, 1/n): 5 deviations; they agree in about one place.
            assert abs(np.corrcoef(first, second)[0, 1]) < 5 / n**0.5
            assert (first == second).sum() < 12


def test_all_orders_of_few_samples_come_equally_often():
    draws = 7_200
    positions, _ = SampleOrder(7, 4).positions(0, 4 * draws)
    _, counts = np.unique(positions.reshape(draws, 4), axis=0, return_counts=True)
    assert len(counts) == 24
    chi_square = ((counts - draws / 24) ** 2 / (draws / 24)).sum()
    assert chi_square < 52.0  # the 0.9995 quantile at 23 degrees of freedom; the draw is fixed


def test_views_are_uniform_over_samples_epochs_and_seeds():
    ids = np.arange(4000)
    for views in (
        choose_views(42, 1, ids, 8),
        choose_views(42, np.arange(1, 4001), np.full(4000, 5), 8),
        np.concatenate([choose_views(seed, 1, ids[:40], 8) for seed in range(100)]),
    ):
        counts = np.bincount(views, minlength=8)
        assert ((counts - 500) ** 2 / 500).sum() < 26.0  # the 0.9995 quantile at 7 degrees of freedom


def test_a_view_depends_on_its_own_sample_and_epoch_alone():
    """The same for any batch and any worker: computed together, alone or in another order."""
    ids = np.random.default_rng(1).integers(0, 2**62, 300)
    epochs = np.random.default_rng(2).integers(1, 60, 300)
    together = choose_views(42, epochs, ids, 8)
    shuffled = np.random.default_rng(3).permutation(300)
    assert choose_views(42, epochs[shuffled], ids[shuffled], 8).tolist() == together[shuffled].tolist()
    alone = [choose_views(42, int(epoch), [int(sample)], 8).item() for epoch, sample in zip(epochs, ids, strict=True)]
    assert alone == together.tolist()


def test_views_of_successive_epochs_are_unrelated():
    ids = np.arange(20_000)
    first, second = (choose_views(42, epoch, ids, 8) for epoch in (1, 2))
    counts = np.bincount(first * 8 + second, minlength=64)
    assert ((counts - 312.5) ** 2 / 312.5).sum() < 106.0  # the 0.9995 quantile at 63 degrees of freedom


def test_one_view_needs_no_choice():
    assert not choose_views(42, 1, np.arange(100), 1).any()


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="length: expected at least 1 sample, got 0"):
        SampleOrder(0, 0)
    with pytest.raises(ValueError, match="start, stop: expected 0 <= start <= stop, got 5 and 4"):
        SampleOrder(0, 10).positions(5, 4)
    with pytest.raises(ValueError, match="upper: expected 1 to"):
        uniform_integers(0, 1)


def test_reals_are_the_hash_between_zero_and_one():
    found = uniform_reals(8, 42, np.arange(1000))
    assert found.tolist() == [((chained(8, 42, number) >> 12) + 0.5) / 2**52 for number in range(1000)]
    assert ((found > 0) & (found < 1)).all()
