import numpy as np
import pytest
import torch
from scipy import stats

from tpkd.data.mixing import Mixing, Mixture, draw_weights, soft_labels

ALPHAS = (0.1, 0.4, 1.0, 8.0)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_weights_are_those_of_a_beta(alpha):
    """Against another sampler, NumPy's, and against the quantiles that a table of the distribution gives."""
    weights = draw_weights(alpha, 42, np.arange(20_000))
    drawn = np.random.default_rng(0).beta(alpha, alpha, 20_000)
    drawn = np.round(drawn * 2**24) / 2**24  # a small alpha has mass below the step of the weights
    assert stats.ks_2samp(weights, drawn).pvalue > 0.01
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        below = (weights <= stats.beta.ppf(share, alpha, alpha)).mean()
        assert below == pytest.approx(share, abs=4 * (share * (1 - share) / 20_000) ** 0.5)


def test_weights_and_what_they_leave_are_exact_in_single_precision():
    weights = draw_weights(0.2, 1, np.arange(1000))
    assert len(set(weights)) > 900
    for values in (weights, 1 - weights):
        assert np.array_equal(values, values.astype(np.float32).astype(np.float64))
    assert ((weights >= 0) & (weights <= 1)).all()


@pytest.mark.parametrize("alpha", [1e-30, 1e-3, 1e18])
def test_extreme_parameters_give_weights_all_the_same(alpha):
    weights = draw_weights(alpha, 1, np.arange(1000))
    expected = {0.5} if alpha > 1 else {0.0, 1.0}
    assert np.isin(weights, list(expected)).mean() > 0.95
    assert np.isfinite(weights).all()


def test_golden_mixtures():
    """These values are promises: a run resumed by a later release must go on with the same images."""
    both = Mixing(mixup=0.2, cutmix=1.0)
    assert both.draw(42, 0, 64) == Mixture(64, 48, 16776104 / 2**24)
    assert both.draw(42, 1, 64) == Mixture(64, 19, 7701250 / 2**24, (0.31513796820286244, 0.467647710448447))
    assert Mixing(cutmix=1.0).draw(42, 1, 64) == both.draw(42, 1, 64)
    assert Mixing(mixup=0.2).draw(42, 0, 64) == both.draw(42, 0, 64)


def test_a_batch_depends_on_seed_and_number_alone():
    mixing = Mixing(mixup=1.0, cutmix=1.0)
    drawn = [mixing.draw(seed, number, 64) for seed in range(5) for number in range(50)]
    assert drawn == [mixing.draw(seed, number, 64) for seed in range(5) for number in range(50)]
    assert len({mixture.weight for mixture in drawn}) == 250


def test_each_kind_has_every_second_batch():
    kinds = [Mixing(mixup=1.0, cutmix=1.0).draw(3, number, 8).centre is None for number in range(2000)]
    assert sum(kinds) == pytest.approx(1000, abs=4 * 500**0.5)
    assert all(Mixing(mixup=0.3).draw(3, number, 8).centre is None for number in range(100))
    assert all(Mixing(cutmix=0.3).draw(3, number, 8).centre is not None for number in range(100))


@pytest.mark.parametrize("size", [2, 3, 10])
def test_a_partner_is_another_sample_and_each_sample_is_one_once(size):
    shifts = [Mixing(mixup=1.0).draw(0, number, size).shift for number in range(3000)]
    assert set(shifts) == set(range(1, size))
    counts = np.bincount(shifts)[1:]
    assert stats.chisquare(counts).pvalue > 0.01 if size > 2 else counts.tolist() == [3000]
    for shift in set(shifts):
        partners = Mixture(size, shift, 0.5).partners(np.arange(size))
        assert sorted(partners) == list(range(size))
        assert (partners != np.arange(size)).all()


def published_box(side, weight, row, column):
    """The function `rand_bbox` of CutMix's repository, for a square and a centre that was drawn."""
    cut = int(side * np.sqrt(1.0 - weight))
    edges = [np.clip(place + sign * (cut // 2), 0, side) for place in (row, column) for sign in (-1, 1)]
    return tuple(int(edge) for edge in edges)


@pytest.mark.parametrize("side", [8, 11, 32, 224])
def test_the_box_is_the_published_one_and_its_pixels_are_counted(side):
    own, others = torch.zeros(1, 1, side, side), torch.ones(1, 1, side, side)
    shares = set()
    for number in range(200):
        mixture = Mixing(cutmix=1.0).draw(5, number, 4)
        top, bottom, left, right = published_box(side, mixture.weight, *(int(share * side) for share in mixture.centre))
        rows, columns = mixture.box(side)
        assert (rows.start, rows.stop, columns.start, columns.stop) == (top, bottom, left, right)
        mixed, own_share = mixture.mix(own, others)
        assert own_share == 1 - int(mixed.sum()) / side**2
        assert int(mixed[..., top:bottom, left:right].sum()) == int(mixed.sum()) == (bottom - top) * (right - left)
        shares.add(own_share)
    assert len(shares) > (10 if side < 32 else 50)
    assert not own.any()  # the plain images are left alone


def test_a_box_that_fits_has_the_drawn_area():
    mixture = Mixture(2, 1, weight=0.75, centre=(0.5, 0.5))
    assert mixture.mix(torch.zeros(1, 1, 100, 100), torch.ones(1, 1, 100, 100))[1] == 0.75


def test_centres_are_uniform():
    centres = np.array([Mixing(cutmix=1.0).draw(11, number, 4).centre for number in range(4000)])
    for column in centres.T:
        assert stats.kstest(column, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(centres.T)[0, 1]) < 4 / 4000**0.5


def test_mixup_is_the_weighted_sum_pixel_by_pixel():
    generator = torch.Generator().manual_seed(0)
    own, others = (torch.randn(3, 2, 5, 5, generator=generator) for _ in range(2))
    weight = Mixing(mixup=1.0).draw(0, 3, 4).weight
    mixed, own_share = Mixture(4, 1, weight).mix(own, others)
    assert own_share == weight
    single = np.float32
    for index in np.ndindex(*own.shape):
        expected = single(weight) * single(own[index]) + single(1 - weight) * single(others[index])
        assert mixed[index].item() == expected.item()


@pytest.mark.parametrize("centre", [None, (0.3, 0.6)], ids=["mixup", "cutmix"])
def test_mixing_commutes_with_normalisation(centre):
    """So two networks of other normalisations would see the same picture: what is mixed are pixels."""
    generator = torch.Generator().manual_seed(1)
    own, others = (torch.rand(3, 3, 8, 8, generator=generator) for _ in range(2))
    mixture = Mixture(3, 1, 0.3, centre)

    def normalise(images):
        return (images - 0.4) / 0.25

    after, before = mixture.mix(normalise(own), normalise(others))[0], normalise(mixture.mix(own, others)[0])
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)


def test_labels_are_shares_of_classes():
    generator = torch.Generator().manual_seed(2)
    own, others = (torch.randint(6, (200,), generator=generator) for _ in range(2))
    shares = torch.rand(200, dtype=torch.float64, generator=generator)
    labels = soft_labels(own, others, shares, 6)
    assert labels.dtype == torch.float32
    for row, (first, second, share) in enumerate(zip(own.tolist(), others.tolist(), shares.tolist(), strict=True)):
        expected = [0.0] * 6
        if first == second:
            expected[first] = 1.0
        else:
            expected[first], expected[second] = np.float32(share).item(), np.float32(1 - share).item()
        assert labels[row].tolist() == expected
    assert (own == others).any()


@pytest.mark.parametrize(("share", "expected"), [(0.0, [0.0, 1.0, 0.0]), (1.0, [1.0, 0.0, 0.0])])
def test_a_weight_of_nothing_leaves_no_trace_in_the_label(share, expected):
    shares = torch.tensor([share], dtype=torch.float64)
    assert soft_labels(torch.tensor([0]), torch.tensor([1]), shares, 3).tolist() == [expected]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mixup": -1.0}, "mixup: expected the alpha of a Beta"),
        ({"cutmix": float("nan")}, "cutmix: expected the alpha of a Beta"),
        ({}, "mixup, cutmix: expected one of them above 0, got 0 and 0"),
    ],
)
def test_bad_parameters_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Mixing(**settings)
