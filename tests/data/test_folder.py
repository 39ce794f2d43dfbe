"""A folder of images: classes, ids, decoding, and what is refused."""

import hashlib

import numpy as np
import pytest
from PIL import Image

from tpkd.data.folder import path_id
from tpkd.data.loading import load_dataset
from tpkd.errors import InputError


def image_folder(root, names, side=6):
    pixels = {}
    for seed, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels[name] = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels[name]).save(path)
    return pixels


def test_folders_are_classes_and_paths_are_ids(tmp_path):
    names = ["train/dog/2.png", "train/cat/b.png", "train/dog/1.PNG", "train/cat/deep/a.bmp", "test/dog/9.png"]
    pixels = image_folder(tmp_path, names)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "test" / "cat").mkdir()
    train, test = (load_dataset(f"folder:{tmp_path}", split) for split in ("train", "test"))
    order = ["train/cat/b.png", "train/cat/deep/a.bmp", "train/dog/1.PNG", "train/dog/2.png"]
    assert train.class_names == test.class_names == ("cat", "dog")
    assert train.inputs.paths == tuple(order)
    assert train.labels.tolist() == [0, 0, 1, 1]
    assert test.labels.tolist() == [1]
    assert np.array_equal(train.take([2, 0]), np.stack([pixels[order[2]], pixels[order[0]]]))
    digest = int(hashlib.sha256(b"train/cat/b.png").hexdigest()[:16], 16) // 2
    assert train.ids[0] == path_id("train/cat/b.png") == digest < 2**63


def test_sample_ids_stay_when_files_come_and_when_the_folder_moves(tmp_path):
    image_folder(tmp_path / "one", ["train/a/1.png", "train/b/1.png"])
    image_folder(tmp_path / "two", ["train/a/1.png", "train/b/1.png", "train/a/0.png"])
    first, second = (load_dataset(f"folder:{name}", "train", root=tmp_path) for name in ("one", "two"))
    assert set(first.ids) < set(second.ids)
    assert first.fingerprint != second.fingerprint


def test_the_fingerprint_of_a_folder_reads_the_images(tmp_path):
    image_folder(tmp_path, ["train/a/1.png", "train/b/1.png"])
    before = load_dataset(f"folder:{tmp_path}", "train").fingerprint
    assert load_dataset(f"folder:{tmp_path}", "train").fingerprint == before
    Image.fromarray(np.ones((6, 6, 3), np.uint8)).save(tmp_path / "train/a/1.png")
    assert load_dataset(f"folder:{tmp_path}", "train").fingerprint != before


def test_images_of_all_modes_and_sizes_become_rgb(tmp_path):
    for number, mode in enumerate(("L", "RGBA", "P", "1", "CMYK", "LA")):
        path = tmp_path / "train" / "a" / f"{number}.{'tif' if mode == 'CMYK' else 'png'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, (4 + number, 5)).save(path)
    taken = load_dataset(f"folder:{tmp_path}", "train").take(range(6))
    assert [image.shape for image in taken] == [(5, 4 + number, 3) for number in range(6)]
    assert all(image.dtype == np.uint8 for image in taken)


def test_bad_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"nowhere/train: cannot be read: No such file"):
        load_dataset("folder:nowhere", "train", root=tmp_path)
    (tmp_path / "train").mkdir()
    with pytest.raises(InputError, match=r"train: expected one folder per class, found none"):
        load_dataset(f"folder:{tmp_path}", "train")
    (tmp_path / "train" / "a").mkdir()
    with pytest.raises(InputError, match=r"train: expected images \(.*\), found none"):
        load_dataset(f"folder:{tmp_path}", "train")
    image_folder(tmp_path, ["train/a/1.png", "test/b/1.png"])
    with pytest.raises(InputError, match=r"test/b: expected the classes of .*train, found another one"):
        load_dataset(f"folder:{tmp_path}", "test")
