import json
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from tpkd.data.views import DIGITS_VIEWS, IDENTITY_VIEW, ViewRecipe
from tpkd.errors import InputError

PAPER = ViewRecipe(num_views=8, seed=0, pad=4, flip=True, size=224, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.25))


def random_images(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def render_with_pillow(recipe, image, sample, view):
    """One view by Pillow alone, channel by channel in its float mode, so that nothing is rounded to bytes."""
    (top,), (left,), (flipped,) = recipe.windows([sample], [view])
    side = image.shape[0]
    picture = ImageOps.expand(Image.fromarray(image), recipe.pad, fill=0)
    picture = picture.crop((left, top, left + side, top + side))
    if flipped:
        picture = ImageOps.mirror(picture)
    size = recipe.size or side
    filters = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
    channels = []
    for band, mean, std in zip(picture.split(), recipe.mean, recipe.std, strict=True):
        values = np.asarray(band, np.float32) / np.float32(recipe.scale)
        if size != side:
            resized = Image.fromarray(values, mode="F").resize((size, size), filters[recipe.interpolation])
            values = np.asarray(resized).clip(0, 1)
        channels.append((values - mean) / std)
    return np.stack(channels)


@pytest.mark.parametrize("size", [None, 32, 48, 224, 16])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_views_are_what_pillow_draws(size, interpolation):
    settings = {**vars(PAPER), "size": size, "interpolation": interpolation}
    recipe = ViewRecipe(**settings)
    images = random_images(6, 32, 32, 3)
    ids, view_ids = np.array([0, 1, 7, 49_999, 2**62, 5]), np.array([0, 7, 3, 2, 1, 0])
    rendered = recipe.render(images, ids, view_ids)
    expected = [render_with_pillow(recipe, *entry) for entry in zip(images, ids, view_ids, strict=True)]
    assert rendered.dtype == torch.float32
    # torch places its filters in float32, up to 1e-5 of a pixel away, and the result is divided by a std of 0.2.
    assert np.abs(rendered.numpy() - np.stack(expected)).max() < 5e-5


def test_the_crop_is_a_window_of_the_padded_image():
    """Without resizing and normalising a view holds the image's own numbers, shifted, over black."""
    recipe = ViewRecipe(num_views=8, pad=4, flip=True)
    image = random_images(1, 32, 32, 3)
    padded = np.zeros((40, 40, 3), np.uint8)
    padded[4:36, 4:36] = image[0]
    for view in range(8):
        (top,), (left,), (flipped,) = recipe.windows([12], [view])
        window = padded[top : top + 32, left : left + 32]
        window = window[:, ::-1] if flipped else window
        result = recipe.render(image, [12], [view])[0].permute(1, 2, 0)
        assert np.array_equal(result.numpy(), window.astype(np.float32) / np.float32(255))


def test_a_view_depends_on_recipe_sample_and_view_alone():
    images = random_images(40, 32, 32, 3)
    ids, view_ids = np.arange(100, 140), np.arange(40) % 8
    recipe = ViewRecipe(num_views=8, pad=4, flip=True)
    together = recipe.render(images, ids, view_ids)
    shuffled = np.random.default_rng(1).permutation(40)
    assert torch.equal(recipe.render(images[shuffled], ids[shuffled], view_ids[shuffled]), together[shuffled])
    assert torch.equal(recipe.render(images[3:4], ids[3:4], view_ids[3:4]), together[3:4])
    other_seed = ViewRecipe(num_views=8, pad=4, flip=True, seed=1)
    assert not torch.equal(other_seed.render(images, ids, view_ids), together)


def test_golden_windows():
    """These values are promises: a teacher cache of an earlier release answers for exactly these views."""
    top, left, flipped = PAPER.windows([0, 0, 1, 49_999], [0, 7, 0, 3])
    assert top.tolist() == [7, 5, 6, 5]
    assert left.tolist() == [0, 4, 8, 0]
    assert flipped.tolist() == [True, True, False, False]


def test_windows_and_flips_are_uniform_and_unrelated():
    ids, view_ids = np.repeat(np.arange(5000), 8), np.tile(np.arange(8), 5000)
    top, left, flipped = PAPER.windows(ids, view_ids)
    assert Counter(top).keys() == Counter(left).keys() == set(range(9))
    cells = np.bincount((top * 9 + left) * 2 + flipped, minlength=162)
    expected = 40_000 / 162
    assert ((cells - expected) ** 2 / expected).sum() < 230.0  # the 0.9997 quantile at 161 degrees of freedom
    # The eight views of a sample differ from each other as eight independent draws do.
    assert abs(np.corrcoef(top[view_ids == 0], top[view_ids == 1])[0, 1]) < 5 / 5000**0.5


def test_evaluation_sees_the_whole_image():
    images = random_images(3, 32, 32, 3)
    recipe = ViewRecipe(num_views=8, pad=4, flip=True, mean=(0.5,), std=(0.25,))
    plain = recipe.render_plain(images)
    assert torch.equal(plain, (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25)
    resized = ViewRecipe(num_views=8, pad=4, flip=True, size=64).render_plain(images)
    assert torch.equal(resized, ViewRecipe(size=64).render(images, [0, 1, 2], [0, 0, 0]))


def test_digits_shift_by_one_pixel_and_never_flip():
    images = random_images(500, 8, 8, 1) % 17
    view_ids = np.arange(500) % 8
    top, left, flipped = DIGITS_VIEWS.windows(np.arange(500), view_ids)
    assert set(top) == set(left) == {0, 1, 2}
    assert not flipped.any()
    rendered = DIGITS_VIEWS.render(images, np.arange(500), view_ids)
    assert rendered.shape == (500, 1, 8, 8)
    assert torch.equal(rendered * 16, (rendered * 16).round())
    assert rendered.max() == 1


def test_the_identity_view_changes_nothing():
    images = random_images(4, 5, 5, 3)
    assert IDENTITY_VIEW.num_views == 1
    assert torch.equal((IDENTITY_VIEW.render(images, range(4), [0] * 4) * 255).round().byte(), as_planes(images))


def as_planes(images):
    return torch.from_numpy(images).permute(0, 3, 1, 2)


def test_images_of_different_sizes_give_central_squares():
    tall, wide, square = random_images(50, 20, 3), random_images(20, 51, 3), random_images(20, 20, 3)
    recipe = ViewRecipe(num_views=2, pad=2, flip=True, size=16)
    rendered = recipe.render([tall, wide, square], [1, 2, 3], [0, 1, 0])
    assert rendered.shape == (3, 3, 16, 16)
    assert torch.equal(rendered[0], recipe.render(tall[None, 15:35], [1], [0])[0])
    assert torch.equal(rendered[1], recipe.render(wide[None, :, 15:35], [2], [1])[0])
    assert torch.equal(rendered[2], recipe.render(square[None], [3], [0])[0])


def test_a_recipe_is_data():
    written = json.loads(PAPER.to_json())
    assert ViewRecipe.from_dict(written) == PAPER
    assert ViewRecipe.from_dict(written).fingerprint == PAPER.fingerprint
    with pytest.raises(ValueError, match=r"unknown \['padding'\]"):
        ViewRecipe.from_dict({**{key: value for key, value in written.items() if key != "pad"}, "padding": 4})
    with pytest.raises(ValueError, match=r"ViewRecipe.flip: expected bool, got 'no'"):
        ViewRecipe.from_dict({**written, "flip": "no"})


def test_every_setting_is_in_the_fingerprint():
    changes = {
        "num_views": 7,
        "seed": 1,
        "pad": 3,
        "flip": False,
        "size": 225,
        "mean": (0.5,),
        "std": (0.5,),
        "scale": 256.0,
        "interpolation": "bilinear",
    }
    assert changes.keys() == vars(PAPER).keys()
    fingerprints = {ViewRecipe(**{**vars(PAPER), name: value}).fingerprint for name, value in changes.items()}
    assert len(fingerprints | {PAPER.fingerprint}) == len(changes) + 1
    assert ViewRecipe(scale=16, mean=[0]).fingerprint == ViewRecipe(scale=16.0, mean=(0.0,)).fingerprint


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_views": 0}, "views: num_views: expected at least 1, found 0"),
        ({"pad": -1}, "views: pad: expected at least 0, found -1"),
        ({"size": 0}, "views: size: expected None or at least 1, found 0"),
        ({"std": (0.2, 0.0, 0.2)}, "views: std: expected positive numbers"),
        ({"mean": ()}, "views: mean: expected finite numbers"),
        ({"scale": 0}, "views: scale: expected a positive number"),
        ({"interpolation": "lanczos"}, "views: interpolation: expected bicubic or bilinear, found 'lanczos'"),
    ],
)
def test_bad_recipes_are_refused_by_key(settings, message):
    with pytest.raises(InputError, match=message):
        ViewRecipe(**settings)


def test_images_that_stay_of_different_sizes_make_no_batch():
    images = [random_images(side, side, 3) for side in (4, 6, 5)]
    with pytest.raises(
        InputError, match=r"views: size: expected one for images of 3 sizes, such as \[4, 5\]; set views\.size"
    ):
        IDENTITY_VIEW.render_plain(images)


def test_bad_images_are_refused():
    with pytest.raises(ValueError, match=r"view_ids: expected 0 to 7, got 0 to 8"):
        PAPER.render(random_images(2, 32, 32, 3), [0, 1], [0, 8])
    with pytest.raises(ValueError, match=r"images: expected uint8 \(batch, H, W, channels\), got float64"):
        PAPER.render(np.zeros((1, 32, 32, 3)), [0], [0])
    with pytest.raises(InputError, match="views: mean: expected 1 or 1 numbers for 1 channels, found 3"):
        PAPER.render(random_images(1, 8, 8, 1), [0], [0])
