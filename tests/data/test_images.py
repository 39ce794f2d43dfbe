"""Images on disk: the formats that folders of images hold, whatever a file is called, and no others."""

import io
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from tpkd.data.dataset import ImageFiles
from tpkd.data.folder import IMAGE_SUFFIXES
from tpkd.errors import InputError

EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 8 8
%%EndComments
newpath 0 0 moveto 8 8 lineto stroke
showpage
%%EOF
"""


def decode(directory, content, name="1.png"):
    (directory / name).write_bytes(content)
    return ImageFiles(directory, (name,)).decode(0)


def encoded(format, size=(4, 4)):
    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    Image.fromarray(pixels).save(stream, format)
    return stream.getvalue()


@pytest.mark.parametrize("suffix", IMAGE_SUFFIXES)
def test_every_suffix_has_its_format(tmp_path, suffix):
    Image.new("RGB", (3, 2), (255, 0, 0)).save(tmp_path / f"1{suffix}")
    assert ImageFiles(tmp_path, (f"1{suffix}",)).decode(0).shape == (2, 3, 3)


def test_a_page_of_postscript_starts_no_other_program(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(shutil, "which", lambda name, *rest, **more: started.append(name))
    monkeypatch.setattr(subprocess, "check_call", lambda *rest, **more: started.append(rest))
    with pytest.raises(InputError, match=r"1\.png: expected an image"):
        decode(tmp_path, EPS)
    assert not started


@pytest.mark.parametrize("format", ["ICO", "PCX", "TGA", "SGI"])
def test_formats_that_no_folder_of_images_holds_are_refused(tmp_path, format):
    with pytest.raises(InputError, match=r"1\.png: expected an image"):
        decode(tmp_path, encoded(format))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_more_pixels_than_an_image_has_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60)
    assert decode(tmp_path, encoded("PNG", (6, 10))).shape == (6, 10, 3)
    with pytest.raises(InputError, match=r"1\.png: expected an image of at most 60 pixels, found 8 × 8"):
        decode(tmp_path, encoded("PNG", (8, 8)))
    with pytest.raises(InputError, match=r"1\.png: expected an image"):
        decode(tmp_path, encoded("PNG", (80, 80)))


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_seeded_damage_is_an_image_or_one_line(tmp_path, format):
    generator, good, messages = np.random.default_rng(0), encoded(format, (16, 16)), []
    for _ in range(60):
        data = bytearray(good)
        for place in generator.integers(0, len(data), generator.integers(1, 6)):
            data[place] = generator.integers(0, 256)
        cut = bytes(data[: generator.integers(1, len(data) + 1)]) if generator.random() < 0.3 else bytes(data)
        try:
            assert decode(tmp_path, cut).shape[-1] == 3
        except InputError as error:
            messages.append(str(error))
    assert not any("\n" in message for message in messages)
