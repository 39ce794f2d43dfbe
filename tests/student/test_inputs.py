"""Texts, images in every form, and vectors become what the network takes; anything else is refused by its place."""

import numpy as np
import pytest
import torch
from PIL import Image

from tpkd.data.batches import Preparation
from tpkd.data.views import ViewRecipe
from tpkd.errors import InputError
from tpkd.student.inputs import prepare

PREPARATION = Preparation(ViewRecipe(size=4, mean=(0.5,), std=(0.25,)))
PIXELS = np.random.default_rng(0).integers(0, 256, (2, 6, 6, 3)).astype(np.uint8)


def images(inputs, kind="image"):
    return prepare(inputs, kind, PREPARATION)


@pytest.mark.parametrize("kind", ["image", "image or vector"])
def test_an_image_is_the_same_as_array_pillow_image_and_file(tmp_path, kind):
    expected = PREPARATION.recipe.render_plain(PIXELS)
    paths = [tmp_path / f"{number}.png" for number in range(2)]
    pictures = [Image.fromarray(pixels) for pixels in PIXELS]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    for form in (PIXELS, list(PIXELS), pictures, paths, [str(path) for path in paths]):
        assert torch.equal(images(form, kind), expected)


def test_images_may_have_different_sizes():
    found = images([PIXELS[0], PIXELS[1, :5]])
    assert found.shape == (2, 3, 4, 4)
    assert torch.equal(found[:1], images(PIXELS[:1]))


def test_grey_arrays_may_leave_out_their_channel():
    assert torch.equal(images(PIXELS[..., 0]), images(PIXELS[..., :1]))
    assert torch.equal(images([PIXELS[0, ..., 0], PIXELS[1, :5, :5, 0]])[:1], images(PIXELS[:1, ..., :1]))


def test_rows_of_numbers_are_vectors_for_an_mlp_alone():
    rows = [[1, 2, 3], [4, 5, 6]]
    assert torch.equal(prepare(rows, "image or vector", PREPARATION), torch.tensor(rows, dtype=torch.float32))
    with pytest.raises(InputError, match=r"inputs: expected an image as uint8 \(N, H, W, channels\), found int64"):
        images(rows)


@pytest.mark.parametrize(
    ("inputs", "kind", "message"),
    [
        ("one text", "text", "inputs: expected a list of text inputs, found a single str; put it into a list"),
        ([], "text", "inputs: expected at least one text input, found none"),
        (["a", 3], "text", r"inputs\[1\]: expected a text, found int"),
        (PIXELS / 255, "image", r"inputs: expected an image as uint8 \(N, H, W, channels\), found float64"),
        ([PIXELS[0], PIXELS[1, :5] / 255], "image", r"inputs\[1\]: expected an image as uint8 \(H, W, channels\)"),
        (["/no/such.png"], "image", "/no/such.png: cannot be read"),
    ],
)
def test_anything_else_is_refused(inputs, kind, message):
    with pytest.raises(InputError, match=message):
        prepare(inputs, kind, PREPARATION)
