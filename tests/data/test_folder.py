"""A folder of images: classes, ids, decoding, and what is refused."""

import hashlib

import numpy as np
import pytest
from PIL import Image

from tpkd.data.folder import path_id
from tpkd.data.loading import load_dataset
from tpkd.data.views import IDENTITY_VIEW
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
    with pytest.raises(InputError, match=r"nowhere: cannot be read: No such file"):
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


def image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path)


def test_folders_named_by_numbers_are_sorted_as_numbers(tmp_path):
    for name in ("10", "2", "0"):
        image(tmp_path / "train" / name / "1.png")
    assert load_dataset(f"folder:{tmp_path}", "train").class_names == ("0", "2", "10")


def test_hidden_and_empty_folders_are_no_classes(tmp_path):
    for split in ("train", "test"):
        for name in ("cat/1.png", "dog/1.png", ".ipynb_checkpoints/1-checkpoint.png", ".git/x.png", "__MACOSX/c/1.png"):
            image(tmp_path / split / name)
        (tmp_path / split / "empty" / "deep").mkdir(parents=True)
        (tmp_path / split / "forgotten").mkdir()
        (tmp_path / split / "forgotten" / ".DS_Store").write_bytes(b"x")
    train, test = (load_dataset(f"folder:{tmp_path}", split) for split in ("train", "test"))
    assert train.class_names == test.class_names == ("cat", "dog")
    assert len(train) == len(test) == 2


def test_hidden_files_in_a_class_are_no_samples(tmp_path):
    for name in ("cat/1.png", "cat/._1.png", "cat/.ipynb_checkpoints/1.png", "cat/deep/__MACOSX/1.png", "dog/1.png"):
        image(tmp_path / "train" / name)
    assert load_dataset(f"folder:{tmp_path}", "train").inputs.paths == ("train/cat/1.png", "train/dog/1.png")


@pytest.mark.parametrize(
    ("train", "test", "problem"),
    [
        (["a/1.png", "b/1.png"], ["a/1.png"], r"test: expected the classes of .*train, found no folder 'b'"),
        (["a/1.png", "b/1.png", "c/1.png"], ["a/1.png"], r"test: .* found no folder 'b' and 1 more"),
        (["a/1.png"], ["a/1.png", "b/1.png"], r"test/b: expected the classes of .*train, found another one"),
    ],
)
def test_train_and_test_folders_of_different_classes_are_named(tmp_path, train, test, problem):
    for split, names in (("train", train), ("test", test)):
        for name in names:
            image(tmp_path / split / name)
    if problem.startswith("test/b"):
        (tmp_path / "train" / "b").mkdir()  # empty, so it is no class, and the test part has one too many
    with pytest.raises(InputError, match=problem):
        load_dataset(f"folder:{tmp_path}", "test")


def test_an_empty_test_folder_says_that_a_class_has_no_test_image(tmp_path):
    for name in ("train/a/1.png", "train/b/1.png", "test/a/1.png"):
        image(tmp_path / name)
    with pytest.raises(InputError, match="add an empty folder for a class without test images"):
        load_dataset(f"folder:{tmp_path}", "test")
    (tmp_path / "test" / "b").mkdir()
    assert load_dataset(f"folder:{tmp_path}", "test").class_names == ("a", "b")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("train/stray.png", r"train/stray.png: expected images in one folder per class"),
        ("train/c/1.heic", r"train/c/1.heic: expected .*\.png.*; convert it"),
        ("train/a/2.avif", r"train/a/2.avif: expected .*\.png.*; convert it"),
        ("train/c/notes.txt", r"train/c: expected images \(.*\), found none, but other files: notes.txt"),
        ("train/Ab/x.png", r"train: class folders 'Ab' and 'ab' differ in"),
    ],
)
def test_files_that_would_be_left_out_are_named(tmp_path, name, problem):
    for each in ("train/a/1.png", "train/ab/1.png"):
        image(tmp_path / each)
    path = tmp_path / name
    if path.suffix == ".png":
        image(path)
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    with pytest.raises(InputError, match=problem):
        load_dataset(f"folder:{tmp_path}", "train")


def test_a_folder_without_parts_is_a_training_part(tmp_path):
    image_folder(tmp_path, ["dog/1.png", "cat/2.png", "cat/3.png"])
    data = load_dataset(f"folder:{tmp_path}", "train")
    assert (data.inputs.paths, data.class_names) == (("cat/2.png", "cat/3.png", "dog/1.png"), ("cat", "dog"))
    assert data.ids[0] == path_id("cat/2.png")
    with pytest.raises(InputError, match=r"expected the folders train and test, found neither; or data\.test: 0\.2"):
        load_dataset(f"folder:{tmp_path}", "test")


def test_decoded_images_raise_no_warning(tmp_path, recwarn):
    image_folder(tmp_path, ["cat/2.png", "dog/1.png"])
    IDENTITY_VIEW.render_plain(load_dataset(f"folder:{tmp_path}", "train").take([0, 1]))
    IDENTITY_VIEW.render_plain([load_dataset(f"folder:{tmp_path}", "train").inputs.decode(0)])
    assert not recwarn.list
