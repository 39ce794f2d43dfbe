"""Small copies of images, encoded anew: nothing of a file but its pixels reaches the page."""

import base64
import io

import numpy as np
from jaxtyping import UInt8

from tpkd.errors import extra

LARGEST_SIDE = 128
LOSSLESS_SIDE = 16
"""Images up to this size are a few bytes as they are, and lossy coding would smear them."""


def thumbnail(pixels: UInt8[np.ndarray, "height width channels"], *, brightest: int = 255) -> str:
    """An image of at most `LARGEST_SIDE` pixels a side as a `data:` address.

    Args:
        pixels: one channel (grey) or three.
        brightest: the value of white; the embedded digits count to 16.

    Example:
        >>> thumbnail(np.zeros((8, 8, 1), dtype=np.uint8))[:22]
        'data:image/png;base64,'
    """
    with extra("train"):
        from PIL import Image
    if brightest != 255:
        pixels = (pixels.astype(np.float64) * (255 / brightest)).round().clip(0, 255).astype(np.uint8)
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    kind = "png" if max(image.size) <= LOSSLESS_SIDE else "jpeg"
    encoded = io.BytesIO()
    image.save(encoded, format=kind, **({} if kind == "png" else {"quality": 88, "subsampling": 0}))
    return f"data:image/{kind};base64,{base64.b64encode(encoded.getvalue()).decode()}"
