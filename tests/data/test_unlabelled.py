"""Training parts without labels, of every kind: what is read, what the classes are, and what is refused."""

import json

import datasets
import numpy as np
import pytest
from safetensors.numpy import save_file

from data.tables import write_csv
from data.test_folder import image_folder
from tpkd.config.loading import resolve_config
from tpkd.data.configured import load_data
from tpkd.data.dataset import NO_LABEL, Dataset
from tpkd.data.loading import load_dataset
from tpkd.errors import InputError

TEXTS, TEST = ["hello you", "so long", "good day"], [("bye", "leave"), ("hi", "greet")]


def csv_folder(folder):
    write_csv(folder / "train.csv", TEXTS, header="text")
    write_csv(folder / "test.csv", [f"{text},{label}" for text, label in TEST])
    return f"csv:{folder}"


def tsv_folder(folder):
    write_csv(folder / "train.tsv", [f"{text}\t" for text in TEXTS], header="text\tlabel")  # empty labels
    write_csv(folder / "test.tsv", ["\t".join(row) for row in TEST], header="text\tlabel")
    return f"tsv:{folder}"


def jsonl_folder(folder):
    (folder / "train.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    (folder / "test.jsonl").write_text("\n".join(json.dumps({"text": text, "label": label}) for text, label in TEST))
    return f"jsonl:{folder}"


def tables():
    texts, labels = zip(*TEST, strict=True)
    test = datasets.Dataset.from_dict({"text": texts, "label": labels})
    return {"train": datasets.Dataset.from_dict({"text": TEXTS}), "test": test}


def parquet_folder(folder):
    for part, table in tables().items():
        table.to_parquet(folder / f"{part}.parquet")
    return f"parquet:{folder}"


def saved_folder(folder):
    datasets.DatasetDict(tables()).save_to_disk(folder / "saved")
    return f"disk:{folder / 'saved'}"


@pytest.mark.parametrize("write", [csv_folder, tsv_folder, jsonl_folder, parquet_folder, saved_folder])
def test_a_table_without_labels_has_the_classes_of_its_test_part(tmp_path, write):
    name = write(tmp_path)
    train, test = (load_dataset(name, split, unlabelled=True) for split in ("train", "test"))
    assert (train.inputs, train.labels.tolist(), train.labelled) == (tuple(TEXTS), [NO_LABEL] * 3, False)
    assert train.class_names == test.class_names == ("greet", "leave")
    assert (test.labels.tolist(), test.labelled, test.ids.tolist()) == ([1, 0], True, [3, 4])
    assert train.notes == (f"{train.notes[0].split(': ')[0]}: training samples have no labels, so the monitor is off",)
    with pytest.raises(InputError, match=r"label"):
        load_dataset(name, "train")


def test_a_missing_column_of_labels_is_refused_with_the_key_that_does_without(tmp_path):
    with pytest.raises(
        InputError, match=r"columns text and label, found 'text'; .* data\.unlabelled: true, --unlabelled$"
    ):
        load_dataset(csv_folder(tmp_path), "train")
    write_csv(tmp_path / "train.csv", TEXTS, header="words")
    problem = (
        r"line 1: expected the column text, found 'words'; name yours with data\.columns, such as \{text: words\}$"
    )
    with pytest.raises(InputError, match=problem):
        load_dataset(f"csv:{tmp_path}", "train", unlabelled=True)


def test_labels_that_are_there_are_not_read(tmp_path):
    csv_folder(tmp_path)
    write_csv(tmp_path / "train.csv", [f"{text}, odd label" for text in TEXTS], header="text,topic")
    data = load_dataset(f"csv:{tmp_path}", "train", unlabelled=True, columns={"text": "text"})
    assert not data.labelled
    digits = load_dataset("digits", "train", unlabelled=True)
    assert digits.labels.tolist() == [NO_LABEL] * len(digits)
    assert digits.class_names == load_dataset("digits", "train").class_names
    assert load_dataset("digits", "test", unlabelled=True).fingerprint == load_dataset("digits", "test").fingerprint


def test_declared_classes_stay_even_if_the_test_part_lacks_one(tmp_path):
    label = datasets.ClassLabel(names=["no", "maybe", "yes"])
    features = datasets.Features(text=datasets.Value("string"), label=label)
    rows = {"text": ["a", "b"], "label": [-1, -1]}, {"text": ["c", "d"], "label": [2, 0]}
    parts = zip(("train", "test"), rows, strict=True)
    saved = {part: datasets.Dataset.from_dict(values, features=features) for part, values in parts}
    datasets.DatasetDict(saved).save_to_disk(tmp_path / "saved")
    train, test = (load_dataset(f"disk:{tmp_path / 'saved'}", part, unlabelled=True) for part in ("train", "test"))
    assert train.class_names == test.class_names == ("no", "maybe", "yes")
    assert test.labels.tolist() == [2, 0]
    with pytest.raises(InputError, match=r"found -1; this part has no labels: .* data\.unlabelled: true"):
        load_dataset(f"disk:{tmp_path / 'saved'}", "train")


def test_given_classes_come_before_those_of_the_test_part(tmp_path):
    name = csv_folder(tmp_path)
    train = load_dataset(name, "train", unlabelled=True, class_names=["leave", "stay", "greet"])
    test = load_dataset(name, "test", unlabelled=True, class_names=["leave", "stay", "greet"])
    assert train.class_names == test.class_names == ("leave", "stay", "greet")
    assert test.labels.tolist() == [0, 2]
    with pytest.raises(InputError, match=r"test\.csv: line 3: label: expected one of data\.class_names, found 'greet'"):
        load_dataset(name, "test", unlabelled=True, class_names=["leave", "stay"])
    with pytest.raises(InputError, match="class_names: expected none without unlabelled"):
        load_dataset(name, "test", class_names=["leave", "stay"])
    with pytest.raises(InputError, match=r"digits: expected no data\.class_names"):
        load_dataset("digits", "train", unlabelled=True, class_names=["0", "1"])


def test_images_anywhere_below_train(tmp_path):
    images = ["train/1.png", "train/deep/er/2.png", "test/cat/3.png", "test/dog/4.png"]
    image_folder(tmp_path, images)
    train, test = (load_dataset(f"folder:{tmp_path}", split, unlabelled=True) for split in ("train", "test"))
    assert train.inputs.paths == ("train/1.png", "train/deep/er/2.png")
    assert train.labels.tolist() == [NO_LABEL] * 2
    assert train.class_names == test.class_names == ("cat", "dog")
    assert test.labels.tolist() == [0, 1]
    names = ["cat", "dog", "owl"]
    wider = load_dataset(f"folder:{tmp_path}", "test", unlabelled=True, class_names=names)
    assert (wider.class_names, wider.labels.tolist()) == (tuple(names), [0, 1])
    with pytest.raises(InputError, match=r"test/dog: expected the classes of data\.class_names, found another one"):
        load_dataset(f"folder:{tmp_path}", "test", unlabelled=True, class_names=["cat", "owl"])
    with pytest.raises(InputError, match=r"train/1\.png: expected images in one folder per class"):
        load_dataset(f"folder:{tmp_path}", "train")


def test_a_validation_part_of_images_may_be_the_test_part(tmp_path):
    image_folder(tmp_path, ["train/1.png", "val/cat/3.png", "val/dog/4.png"])
    train, test = (load_dataset(f"folder:{tmp_path}", split, unlabelled=True) for split in ("train", "test"))
    assert (len(train), test.labels.tolist()) == (1, [0, 1])


@pytest.mark.parametrize("suffix", ["npz", "npy", "safetensors"])
def test_vectors_without_labels(tmp_path, suffix):
    features, labels = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([5, 3, 5])
    if suffix == "npz":
        np.savez(tmp_path / "train.npz", features=features)
        np.savez(tmp_path / "test.npz", features=features, labels=labels)
    elif suffix == "npy":
        np.save(tmp_path / "train.npy", features)
        np.save(tmp_path / "test.npy", features)
        np.save(tmp_path / "test.labels.npy", labels)
    else:
        save_file({"features": features}, tmp_path / "train.safetensors")
        save_file({"features": features, "labels": labels}, tmp_path / "test.safetensors")
    train, test = (load_dataset(f"vector:{tmp_path}", split, unlabelled=True) for split in ("train", "test"))
    assert train.labels.tolist() == [NO_LABEL] * 3
    assert train.class_names == test.class_names == ("3", "5")
    assert test.labels.tolist() == [1, 0, 1]
    with pytest.raises(InputError, match="expected the arrays features and labels, found features"):
        load_dataset(f"vector:{tmp_path}", "train")


def test_all_samples_of_a_part_have_labels_or_none_has():
    with pytest.raises(InputError, match="expected labels from 0 to 1, found -100 in row 1"):
        Dataset("toy", "train", "text", ("a", "b"), np.array([0, NO_LABEL]), np.arange(2), ("x", "y"))
    data = Dataset("toy", "train", "text", ("a", "b"), np.array([0, 1]), np.arange(2), ("x", "y"))
    bare = data.without_labels()
    assert not bare.labelled
    assert bare.subset([1]).labels.tolist() == [NO_LABEL]
    assert bare.fingerprint != data.fingerprint


def plain(**changes):
    rest = {"output": "runs/x", "student": {"model": "builtin:mlp"}, "objective": "kl-dist", "epochs": 1}
    return {**rest, "optimizer": {"name": "sgd", "learning_rate": 0.1}, **changes}


def test_a_truncated_cache_is_refused():
    teacher = {"model": "builtin:mlp", "cache": "cache", "top_k": 3}
    with pytest.raises(InputError, match=r"teacher\.top_k: expected none beside data\.unlabelled: true"):
        resolve_config(plain(data={"name": "digits", "unlabelled": True}, teacher=teacher))


def test_a_configuration_names_the_file_of_the_classes(tmp_path):
    name = csv_folder(tmp_path)
    (tmp_path / "classes.txt").write_text("stay\ngreet\nleave\n")
    data = {"name": name, "unlabelled": True, "class_names": str(tmp_path / "classes.txt")}
    config = resolve_config(plain(data=data))
    assert load_data(config, "train").class_names == ("stay", "greet", "leave")
    assert load_data(config, "test").labels.tolist() == [2, 1]
