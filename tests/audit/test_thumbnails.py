"""Thumbnails: small, with the right pixels, and encoded anew."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from tpkd.audit.thumbnails import LARGEST_SIDE, thumbnail


def decoded(address):
    head, _, data = address.partition(",")
    assert head in ("data:image/png;base64", "data:image/jpeg;base64")
    return Image.open(io.BytesIO(base64.b64decode(data)))


def test_tiny_images_keep_every_pixel():
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8, 1)
    np.testing.assert_array_equal(np.asarray(decoded(thumbnail(pixels))), pixels[..., 0])


def test_white_is_stretched():
    pixels = np.array([[[0], [8], [16]]], dtype=np.uint8)
    assert np.asarray(decoded(thumbnail(pixels, brightest=16))).tolist() == [[0, 128, 255]]


@pytest.mark.parametrize("shape", [(1000, 400, 3), (3, 2000, 3), (32, 32, 3), (300, 300, 1)])
def test_large_images_become_small(shape):
    image = decoded(thumbnail(np.full(shape, 200, np.uint8)))
    assert max(image.size) <= LARGEST_SIDE
    assert np.abs(np.asarray(image).astype(int) - 200).max() <= 3
