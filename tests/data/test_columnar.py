"""Tables of the `datasets` library: parquet, Arrow, `save_to_disk` and the hub."""

import io
import os
import subprocess
import sys
from contextlib import suppress

import datasets
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from tpkd.data.loading import load_dataset
from tpkd.errors import InputError

TEXTS = {"text": ["hello", "bye", "hey"], "category": ["greet", "leave", "greet"]}
PLAIN = {"text": TEXTS["text"], "label": TEXTS["category"]}


def png(seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return pixels, buffer.getvalue()


def write_stream(table, path):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def write_file(table, path):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def write_disk(table, path):
    datasets.DatasetDict(train=datasets.Dataset(table)).save_to_disk(path)


WRITERS = {
    "parquet:a.parquet": lambda table, path: parquet.write_table(table, path),
    "arrow:a.arrow": write_stream,
    "arrow:b.arrow": write_file,
    "disk:folder": write_disk,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_data_of_the_same_csv(tmp_path, name):
    WRITERS[name](pa.table(TEXTS | {"nested": [[1], [], None]}), tmp_path / name.split(":")[1])
    (tmp_path / "a.csv").write_text("text,category\nhello,greet\nbye,leave\nhey,greet\n")
    data = load_dataset(name, "train", root=tmp_path)
    assert (data.kind, data.inputs, data.class_names) == ("text", ("hello", "bye", "hey"), ("greet", "leave"))
    assert data.fingerprint == load_dataset("csv:a.csv", "train", root=tmp_path).fingerprint


def test_class_labels_come_out_as_names_in_their_declared_order(tmp_path):
    features = datasets.Features(
        text=datasets.Value("string"), label=datasets.ClassLabel(names=["leave", "stay", "greet"])
    )
    rows = datasets.Dataset.from_dict({"text": ["hello", "bye"], "label": [2, 0]}, features=features)
    datasets.DatasetDict(train=rows, validation=rows.select([1])).save_to_disk(tmp_path / "disk")
    rows.to_parquet(tmp_path / "train.parquet")
    for name in ("disk:disk", "parquet:train.parquet"):
        data = load_dataset(name, "train", root=tmp_path)
        assert (data.class_names, data.labels.tolist()) == (("leave", "greet"), [1, 0])
    test = load_dataset("disk:disk", "test", root=tmp_path)
    assert (test.inputs, test.labels.tolist(), test.ids.tolist()) == (("bye",), [0], [2])
    assert "no part 'test', so 'validation' is the test part" in test.notes[0]


def test_whole_numbers_are_labels(tmp_path):
    parquet.write_table(pa.table({"text": ["a", "b", "c"], "label": [10, 2, 10]}), tmp_path / "a.parquet")
    assert load_dataset(f"parquet:{tmp_path}/a.parquet", "train").class_names == ("2", "10")


def test_a_folder_has_a_file_or_numbered_files_per_part(tmp_path):
    table = pa.table(PLAIN)
    for number in range(2):
        parquet.write_table(table, tmp_path / f"train-0000{number}-of-00002.parquet")
    parquet.write_table(table.slice(1, 1), tmp_path / "test.parquet")
    train, test = (load_dataset(f"parquet:{tmp_path}", split) for split in ("train", "test"))
    assert train.inputs == tuple(PLAIN["text"] * 2)
    assert (test.inputs, test.ids.tolist()) == (("bye",), [6])


def test_parts_of_a_saved_dictionary_are_named(tmp_path):
    rows = datasets.Dataset.from_dict(PLAIN)
    datasets.DatasetDict(full=rows, tiny=rows.select([0])).save_to_disk(tmp_path / "d")
    splits = {"train": "full", "test": "tiny"}
    assert load_dataset(f"disk:{tmp_path}/d", "test", splits=splits).inputs == ("hello",)
    with pytest.raises(InputError, match=r"expected the part 'train', found full, tiny; name the parts with data.spl"):
        load_dataset(f"disk:{tmp_path}/d", "train")


def test_reading_local_data_writes_nothing(tmp_path):
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    parquet.write_table(pa.table(PLAIN), work / "a.parquet")
    write_disk(pa.table(PLAIN), work / "d")
    before = sorted(work.rglob("*"))
    code = (
        "from tpkd.data import load_dataset\n"
        "for name in ('parquet:a.parquet', 'disk:d'): load_dataset(name, 'train').fingerprint\n"
    )
    environment = {**os.environ, "HOME": str(home), "HF_HOME": str(home / "hf"), "XDG_CACHE_HOME": str(home / "cache")}
    subprocess.run([sys.executable, "-c", code], cwd=work, env=environment, check=True)
    assert sorted(work.rglob("*")) == before
    assert not [path for path in home.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["parquet:a.parquet", "disk:d"])
def test_columns_of_images(tmp_path, name):
    pixels, encoded = zip(*(png(seed) for seed in range(3)), strict=True)
    features = datasets.Features(img=datasets.Image(), fine_label=datasets.ClassLabel(names=["cat", "dog"]))
    cells = [{"bytes": image, "path": None} for image in encoded]
    rows = datasets.Dataset.from_dict({"img": cells, "fine_label": [1, 0, 1]}, features=features)
    rows.to_parquet(tmp_path / "a.parquet")
    rows.save_to_disk(tmp_path / "d")
    data = load_dataset(name, "train", root=tmp_path)
    assert (data.kind, len(data), data.class_names, data.labels.tolist()) == ("image", 3, ("cat", "dog"), [1, 0, 1])
    assert np.array_equal(data.take([2, 0]), np.stack([pixels[2], pixels[0]]))
    part = data.subset([1, 2])
    assert np.array_equal(part.take([0]), pixels[1][None])
    assert part.fingerprint != data.fingerprint == load_dataset(name, "train", root=tmp_path).fingerprint


def test_a_column_of_plain_bytes_holds_images(tmp_path):
    table = pa.table({"photo": [png(0)[1], b"no image", None], "label": ["a", "b", "a"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    data = load_dataset(f"parquet:{tmp_path}/a.parquet", "train", columns={"image": "photo"})
    assert np.array_equal(data.take([0])[0], png(0)[0])
    with pytest.raises(
        InputError, match=r"a.parquet: line 2: photo: expected an image, found none that can be decoded"
    ):
        data.take([1])
    with pytest.raises(InputError, match=r"a.parquet: line 3: photo: expected an image, found None"):
        data.take([2])


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (
            {"text": ["a", "b"], "label": [["x"], ["y"]]},
            r"label: expected names or whole numbers, found a column of list<",
        ),
        ({"text": [{"t": "a"}, {"t": "b"}], "label": ["x", "y"]}, r"text: expected texts, found a column of struct<"),
        ({"text": [b"a", b"\xff"], "label": ["x", "y"]}, r"text: expected texts, found a column of binary"),
        ({"text": pa.nulls(2), "label": ["x", "y"]}, r"text: expected texts, found a column of null"),
        ({"text": ["a", "b"], "label": pa.array([1, 2], pa.timestamp("s"))}, r"label: .* found a column of timestamp"),
        ({"text": ["a", "b\0"], "label": ["x", "y"]}, r"line 2: text: expected a text, found a NUL in it"),
        ({"text": ["a", "b"], "label": ["x", "y" * 1001]}, r"line 2: label: expected at most 1000 characters, found 1"),
        ({"text": ["a", None], "label": ["x", "y"]}, "line 2: text: expected a text, found None"),
        ({"text": ["a", " "], "label": ["x", "y"]}, "line 2: text: expected a text, found none"),
        (
            {"text": ["a", "b"], "label": [0.0, 1.5]},
            r"label: expected names or whole numbers, found a column of double",
        ),
        ({"text": ["a", "b"], "label": ["x", "X "]}, "line 2: label: expected no white space around it"),
        ({"text": ["a", "b"], "label": ["xx", "Xx"]}, r"line 2: label: 'Xx' and 'xx' \(line 1\) differ in upper"),
        ({"words": ["a"], "label": ["x"]}, "expected the columns text or image and label, found 'words, label'"),
        ({"text": pa.array([], pa.string()), "label": pa.array([], pa.string())}, "expected at least one row"),
        ({"text": [1, 2], "label": ["x", "y"]}, "line 1: text: expected a text, found 1"),
    ],
)
def test_rows_are_held_to_the_rules_of_other_tables(tmp_path, columns, problem):
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=f"a.parquet: {problem}") as caught:
        load_dataset(f"parquet:{tmp_path}/a.parquet", "train")
    assert "\n" not in str(caught.value)


def test_a_part_without_labels_is_refused(tmp_path):
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["a", "b"]))
    rows = datasets.Dataset.from_dict({"text": ["x", "y"], "label": [0, 1]}, features=features)
    hidden = datasets.Dataset.from_dict({"text": ["z"], "label": [-1]}, features=features)
    datasets.DatasetDict(train=rows, test=hidden).save_to_disk(tmp_path / "d")
    with pytest.raises(
        InputError, match=r"d, test: line 1: label: expected 0 to 1, .* found -1; this part has no labels"
    ):
        load_dataset(f"disk:{tmp_path}/d", "test")


def test_a_test_label_that_training_never_saw_is_refused(tmp_path):
    parquet.write_table(pa.table(PLAIN), tmp_path / "train.parquet")
    parquet.write_table(pa.table({"text": ["x"], "label": ["leafe"]}), tmp_path / "test.parquet")
    with pytest.raises(InputError, match=r"test.parquet: line 1: label: expected one of .*did you mean leave"):
        load_dataset(f"parquet:{tmp_path}", "test")


@pytest.mark.parametrize("name", ["parquet:a.parquet", "arrow:a.arrow", "disk:folder"])
@pytest.mark.parametrize("keep", [0, 0.5, 0.98])
def test_truncated_files_are_one_line(tmp_path, name, keep):
    place = tmp_path / name.split(":")[1]
    WRITERS[name](pa.table({key: value * 100 for key, value in PLAIN.items()}), place)
    path = next(place.rglob("*.arrow")) if place.is_dir() else place
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(InputError, match=f"{place.name}.*damaged or not what its name says") as caught:
        load_dataset(name, "train", root=tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["parquet:a.parquet", "arrow:a.arrow", "disk:folder"])
def test_seeded_damage_is_data_or_one_line(tmp_path, name):
    place = tmp_path / name.split(":")[1]
    WRITERS[name](pa.table({key: value * 20 for key, value in PLAIN.items()}), place)
    random = np.random.default_rng(0)
    files = [path for path in place.rglob("*") if path.is_file()] if place.is_dir() else [place]
    refused = 0
    for path in files:
        whole = path.read_bytes()
        for _ in range(25):
            damaged = bytearray(whole)
            for position in random.integers(0, len(whole), 3):
                damaged[position] = random.integers(0, 256)
            path.write_bytes(damaged)
            with suppress(InputError):
                load_dataset(name, "train", root=tmp_path)
                continue
            refused += 1
        path.write_bytes(whole)
    assert refused > 5


@pytest.mark.parametrize("kind", ["parquet", "arrow", "disk"])
def test_what_is_not_there_or_is_no_file_is_one_line(tmp_path, kind):
    with pytest.raises(InputError, match=r"nowhere: (cannot be read|expected a folder written by save_to_disk)"):
        load_dataset(f"{kind}:nowhere", "train", root=tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe: expected a (regular file, found a FIFO|folder)"):
        load_dataset(f"{kind}:pipe", "train", root=tmp_path)


def test_a_folder_that_save_to_disk_did_not_write_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n")
    with pytest.raises(InputError, match="expected a folder written by save_to_disk, found other files"):
        load_dataset(f"disk:{tmp_path}", "train")


def test_one_saved_table_has_no_test_part(tmp_path):
    datasets.Dataset.from_dict(PLAIN).save_to_disk(tmp_path / "d")
    assert len(load_dataset(f"disk:{tmp_path}/d", "train")) == 3
    with pytest.raises(InputError, match="expected parts such as train and test, found one table"):
        load_dataset(f"disk:{tmp_path}/d", "test")


def test_the_hub_is_asked_for_data_and_its_absence_is_one_line(tmp_path, monkeypatch):
    asked = []

    def answer(*arguments):
        asked.append(arguments)
        return datasets.DatasetDict(train=datasets.Dataset.from_dict(PLAIN))

    monkeypatch.setattr(datasets, "load_dataset", answer)
    monkeypatch.chdir(tmp_path)
    assert load_dataset("hf:owner/name", "train", root="elsewhere").inputs == ("hello", "bye", "hey")
    load_dataset("hf:owner/name:small", "train")
    assert set(asked) == {("owner/name", None), ("owner/name", "small")}
    for wrong in ("hf:../name", "hf:a/b/c", "hf:/etc", "hf:https://x"):
        with pytest.raises(InputError, match="expected an id of the hub such as owner/name"):
            load_dataset(wrong, "train")
    (tmp_path / "local").mkdir()
    with pytest.raises(InputError, match=r"found a path of that name here; did you mean disk:local\?"):
        load_dataset("hf:local", "train")


def test_offline_the_hub_is_refused_with_the_way_out(tmp_path):
    code = (
        "from tpkd.data import load_dataset\nfrom tpkd.errors import InputError\n"
        "try: load_dataset('hf:owner/name', 'train')\nexcept InputError as error: print(error)\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    (line,) = done.stdout.splitlines()
    assert line.startswith("hf:owner/name: cannot be fetched: ")
    assert line.endswith("save it with save_to_disk, then use disk:FOLDER")


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"datasets is not installed: pip install 'tpkd\[data\]'"):
        load_dataset(f"parquet:{tmp_path}/a.parquet", "train")
