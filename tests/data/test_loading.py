"""Data sets from their files: what is read, in which order, and what is refused."""

import hashlib
import json
import pickle

import numpy as np
import pytest
from PIL import Image

from tpkd.data.folder import path_id
from tpkd.data.loading import load_dataset
from tpkd.errors import InputError


def test_digits_hold_out_a_share_of_every_class():
    from sklearn.datasets import load_digits

    published = load_digits()
    train, test = load_dataset("digits", "train"), load_dataset("digits", "test")
    assert sorted([*train.ids, *test.ids]) == list(range(1797))
    for part, share in ((train, 0.6), (test, 0.4)):
        assert np.array_equal(part.inputs[..., 0], published.images[part.ids])
        assert np.array_equal(part.labels, published.target[part.ids])
        counts = np.bincount(part.labels) - share * np.bincount(published.target)
        assert np.abs(counts).max() < 1


def test_the_split_of_digits_is_pinned():
    """A teacher cache of an earlier release holds exactly these samples."""
    assert load_dataset("digits", "train").fingerprint.startswith("bc9bf7e23e48")
    assert load_dataset("digits", "test").fingerprint.startswith("8afd4d27764a")


def clinc(tmp_path, **changes):
    content = {
        "oos_train": [["who knows", "oos"]],
        "val": [["send money", "transfer"]],
        "train": [["pay my rent", "transfer"], ["play jazz", "music"]],
        "test": [["some blues", "music"], ["wire 5 dollars", "transfer"]],
        "oos_val": [],
        "oos_test": [["hm", "oos"]],
        **changes,
    }
    path = tmp_path / "clinc150" / "data_full.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    return tmp_path


def test_clinc150_merges_training_and_validation_and_leaves_out_of_scope_rows(tmp_path):
    root = clinc(tmp_path)
    train, test = (load_dataset("clinc150", split, root=root) for split in ("train", "test"))
    assert train.inputs == ("pay my rent", "play jazz", "send money")
    assert train.class_names == test.class_names == ("music", "transfer")
    assert train.labels.tolist() == [1, 0, 1]
    assert train.ids.tolist() == [0, 1, 2]
    assert test.inputs == ("some blues", "wire 5 dollars")
    assert test.labels.tolist() == [0, 1]
    assert test.ids.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"val": [["only text"]]}, r"data_full.json: val\[0\]: expected \[text, intent\], found \['only text'\]"),
        ({"test": None}, "data_full.json: expected a list of .* under 'test'"),
        ({"test": [["a", "new"]]}, "data_full.json: test: expected the intents of train, found 'new'"),
    ],
)
def test_damaged_clinc150_is_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        load_dataset("clinc150", "train", root=clinc(tmp_path, **changes))


def test_what_is_no_json_is_refused(tmp_path):
    (clinc(tmp_path) / "clinc150" / "data_full.json").write_text("{")
    with pytest.raises(InputError, match=r"data_full.json: damaged"):
        load_dataset("clinc150", "train", root=tmp_path)


def cifar(tmp_path, *, text_keys, **changes):
    random = np.random.default_rng(0)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir(exist_ok=True)
    content = {}
    for split, count in (("train", 6), ("test", 4)):
        pixels = random.integers(0, 256, (count, 3072), dtype=np.uint8)
        content[split] = {"data": pixels, "fine_labels": [2, 0, 1, 2, 0, 1][:count], **changes}
        keyed = content[split] if text_keys else {key.encode(): value for key, value in content[split].items()}
        (folder / split).write_bytes(pickle.dumps(keyed, protocol=2))
    names = ["apple", "bear", "cup"]
    meta = {"fine_label_names": names} if text_keys else {b"fine_label_names": [name.encode() for name in names]}
    (folder / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    return content


@pytest.mark.parametrize("text_keys", [True, False])
def test_cifar100_reads_planes_of_colour(tmp_path, text_keys):
    content = cifar(tmp_path, text_keys=text_keys)
    train, test = (load_dataset("cifar100", split, root=tmp_path) for split in ("train", "test"))
    assert train.class_names == ("apple", "bear", "cup")
    assert train.labels.tolist() == [2, 0, 1, 2, 0, 1]
    assert (train.ids.tolist(), test.ids.tolist()) == ([*range(6)], [50_000, 50_001, 50_002, 50_003])
    for row, column, channel in ((0, 0, 0), (3, 17, 1), (31, 31, 2)):
        plane = content["train"]["data"][:, channel * 1024 + row * 32 + column]
        assert np.array_equal(train.inputs[:, row, column, channel], plane)


def test_cifar100_from_npz_is_the_same_data(tmp_path):
    cifar(tmp_path, text_keys=True)
    parts = {split: load_dataset("cifar100", split, root=tmp_path) for split in ("train", "test")}
    arrays = {f"{split}_images": data.inputs for split, data in parts.items()}
    arrays |= {f"{split}_labels": data.labels for split, data in parts.items()}
    other = tmp_path / "other"
    other.mkdir()
    np.savez(other / "cifar100.npz", class_names=np.array(parts["train"].class_names), **arrays)
    for split, data in parts.items():
        assert load_dataset("cifar100", split, root=other).fingerprint == data.fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": np.zeros((6, 3071), np.uint8)}, r"train: data: expected uint8 \(n, 3072\), found uint8 \(6, 3071\)"),
        ({"data": np.zeros((6, 3072))}, r"train: data: expected uint8 \(n, 3072\), found float64"),
        ({"fine_labels": ["a"]}, "train: labels: expected a list of integers, found list"),
        ({"fine_labels": [0, 1, 2, 3, 0, 0]}, "expected labels from 0 to 2, found 3 in row 3"),
    ],
)
def test_damaged_cifar100_is_refused(tmp_path, changes, message):
    cifar(tmp_path, text_keys=True, **changes)
    with pytest.raises(InputError, match=message):
        load_dataset("cifar100", "train", root=tmp_path)


def test_cifar100_without_its_parts_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"cifar-100-python/train: cannot be read: No such file"):
        load_dataset("cifar100", "train", root=tmp_path)
    cifar(tmp_path, text_keys=True)
    (tmp_path / "cifar-100-python" / "meta").write_bytes(pickle.dumps({"label_names": []}))
    with pytest.raises(InputError, match=r"meta: expected a dict with 'fine_label_names', found a dict with \['label_"):
        load_dataset("cifar100", "train", root=tmp_path)


def test_a_pickle_inside_npz_is_refused(tmp_path):
    objects = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "cifar100.npz", train_images=objects, train_labels=objects, class_names=objects)
    with pytest.raises(InputError, match=r"cifar100.npz: expected numbers, found a pickled array"):
        load_dataset("cifar100", "train", root=tmp_path)
    np.savez(tmp_path / "cifar100.npz", train_images=np.zeros(1))
    with pytest.raises(InputError, match=r"cifar100.npz: expected the arrays .* found no train_labels"):
        load_dataset("cifar100", "train", root=tmp_path)


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


def as_jsonl(rows):
    return "\n".join(json.dumps({"text": text, "label": label, "other": 1}) for text, label in rows)


def as_csv(rows):
    return "label,note,text\r\n" + "\r\n".join(f'{label},x,"{text}"' for text, label in rows)


@pytest.mark.parametrize(("suffix", "write"), [("jsonl", as_jsonl), ("csv", as_csv)])
def test_tables_of_texts(tmp_path, suffix, write):
    train_rows = [("hello, you", "greet"), ("bye\nnow" if suffix == "csv" else "bye", "leave"), ("ça va", "greet")]
    (tmp_path / f"train.{suffix}").write_text(write(train_rows), encoding="utf-8")
    (tmp_path / f"test.{suffix}").write_text("\ufeff" + write([("ciao", "leave")]), encoding="utf-8")
    train, test = (load_dataset(f"{suffix}:{tmp_path}", split) for split in ("train", "test"))
    assert train.inputs == tuple(text for text, _ in train_rows)
    assert train.class_names == test.class_names == ("greet", "leave")
    assert train.labels.tolist() == [0, 1, 0]
    assert (test.labels.tolist(), test.ids.tolist()) == ([1], [3])
    alone = load_dataset(f"{suffix}:train.{suffix}", "train", root=tmp_path)
    assert alone.fingerprint == train.fingerprint
    with pytest.raises(InputError, match=f"expected a directory with train.{suffix} and test.{suffix}"):
        load_dataset(f"{suffix}:{tmp_path}/train.{suffix}", "test")


def test_numbers_are_labels_by_their_digits(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": 7}\n\n{"text": "y", "label": "10"}\n')
    data = load_dataset("jsonl:a.jsonl", "train", root=tmp_path)
    assert data.class_names == ("7", "10")
    assert data.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "x", "label": "a"}\n{"text": "x"', "a.jsonl: line 2: expected a JSON object"),
        ("a.jsonl", '["x", "a"]', "a.jsonl: line 1: expected an object with text and label"),
        ("a.jsonl", '{"text": "x"}', "a.jsonl: line 1: expected an object with text and label"),
        ("a.jsonl", '{"text": 1, "label": "a"}', "a.jsonl: line 1: text: expected a text, found 1"),
        ("a.jsonl", '{"text": "x", "label": 1.5}', "a.jsonl: line 1: label: expected a name or a whole number"),
        ("a.jsonl", '{"text": "x", "label": true}', "a.jsonl: line 1: label: expected a name or a whole number"),
        ("a.jsonl", "", "a.jsonl: expected at least one row, found none"),
        ("a.jsonl", "[" * 100_000, "a.jsonl: line 1: expected a JSON object"),
        ("a.csv", "words,label\nx,a\n", "a.csv: line 1: expected the columns text and label, found 'words, label'"),
        ("a.csv", "text,label\nx,a\ny\n", "a.csv: line 3: expected 2 fields as in line 1, found 1"),
        ("a.csv", 'text,label\nx,a\n"y"z,a\n', "a.csv: line 3: not CSV"),
        ("a.csv", "", "a.csv: line 1: expected the columns"),
    ],
)
def test_bad_rows_are_named_by_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        load_dataset(f"{name.split('.')[1]}:{name}", "train", root=tmp_path)
    assert "\n" not in str(caught.value)


def test_a_test_label_that_training_never_saw_is_refused(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\nx,a\n")
    (tmp_path / "test.csv").write_text("text,label\nx,b\n")
    with pytest.raises(InputError, match=r"test.csv: line 2: label: expected one of .*train.csv, found 'b'"):
        load_dataset(f"csv:{tmp_path}", "test")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"text,label\n\xff\xfe,a\n")
    with pytest.raises(InputError, match=r"a.csv: damaged"):
        load_dataset("csv:a.csv", "train", root=tmp_path)


def test_unknown_names_are_refused(monkeypatch):
    with pytest.raises(InputError, match=r"data set: expected one of digits, .*csv:PATH, found 'mnist'"):
        load_dataset("mnist", "train")
    with pytest.raises(InputError, match=r"data set: expected one of .* found 'folder:'"):
        load_dataset("folder:", "train")
    with pytest.raises(InputError, match=r"split: expected train or test, found 'val'"):
        load_dataset("digits", "val")
    monkeypatch.delenv("TPKD_DATA", raising=False)
    with pytest.raises(InputError, match=r"clinc150: expected the folder that holds it .* TPKD_DATA"):
        load_dataset("clinc150", "train")
