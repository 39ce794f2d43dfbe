"""Logits of all classes: the same numbers from every format, and what is refused before anything is written."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from importing.files import FORMATS, SUITED, answers, importing_config, write
from tpkd.class_names import to_metadata
from tpkd.data.class_map import ClassMap
from tpkd.errors import InputError
from tpkd.importing import logits as module
from tpkd.importing.logits import LogitsSource


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    dataset, logits = answers(importing_config(tmp_path_factory.mktemp("logits")))
    return dataset, logits[:, 0]


def read(source, dataset):
    source.check(np.arange(len(dataset)), "float16")
    return source.stream(np.arange(len(dataset))).read(0, source.rows * source.num_views)["logits"]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_numbers(case, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(module, "rows_per_block", lambda size: 7)
    dataset, logits = case
    source = LogitsSource(write(tmp_path / f"logits.{kind}", logits), dataset, 1, None)
    assert (source.rows, source.num_views, source.top_k) == (60, 1, None)
    np.testing.assert_allclose(read(source, dataset).numpy(), logits, rtol=1e-6)


@pytest.mark.parametrize("kind", SUITED)
def test_views_are_an_axis_of_their_own(case, tmp_path, kind):
    dataset, _ = case
    wide = np.random.default_rng(0).normal(size=(60, 3, 10)).astype(np.float32)
    path = write(tmp_path / f"logits.{kind}", wide)
    np.testing.assert_array_equal(read(LogitsSource(path, dataset, 3, None), dataset).numpy(), wide.reshape(180, 10))
    with pytest.raises(InputError, match=r"expected logits \(N, views, classes\) = \(N, 2, 10\) as in digits, found"):
        LogitsSource(path, dataset, 2, None)


def test_classes_are_mapped_by_their_names(case, tmp_path):
    dataset, logits = case
    names = ("other", *reversed(dataset.class_names))
    class_map = ClassMap.from_names(names, dataset.class_names)
    theirs = np.concatenate([np.full((60, 1), 50.0, np.float32), logits[:, ::-1]], axis=1)
    path = write(tmp_path / "logits.npy", theirs)
    np.testing.assert_array_equal(read(LogitsSource(path, dataset, 1, class_map), dataset).numpy(), logits)
    with pytest.raises(InputError, match=r"= \(N, 10\) as in digits, found shape \(60, 11\)"):
        LogitsSource(path, dataset, 1, None)


def test_names_of_classes_in_the_file_are_compared(case, tmp_path):
    dataset, logits = case
    path = tmp_path / "logits.safetensors"
    save_file({"logits": logits}, path, metadata=to_metadata(dataset.class_names[::-1]))
    with pytest.raises(InputError, match=r"class 0: expected '0' as in digits, found '9': the same names in another"):
        LogitsSource(path, dataset, 1, None)


@pytest.mark.parametrize(
    ("change", "dtype", "message"),
    [
        (lambda z: z.__setitem__((7, 3), np.nan), "float32", "row 7: expected finite logits, found nan at class 3"),
        (lambda z: z.__setitem__((59, 0), -np.inf), "float16", "row 59: expected finite logits, found -inf at class 0"),
        (
            lambda z: z.__setitem__((8, 9), 7e4),
            "float16",
            "row 8: expected logits that float16 holds, found 70000 at class 9; set teacher.cache_dtype to float32",
        ),
        (lambda z: z.__setitem__(slice(None), np.exp(z) / np.exp(z).sum(1, keepdims=True)), "float16", "probabilities"),
        (
            lambda z: z.__setitem__(z < np.sort(z, 1)[:, 7:8], -1e4),
            "float16",
            "expected the logits of all classes, found all but the largest of every row at one value",
        ),
    ],
)
def test_rows_that_no_teacher_says_are_refused_by_their_number(case, tmp_path, change, dtype, message, monkeypatch):
    monkeypatch.setattr(module, "rows_per_block", lambda size: 25)
    dataset, logits = case
    changed = logits.copy()
    change(changed)
    path = write(tmp_path / "logits.npy", changed)
    with pytest.raises(InputError, match=message) as caught:
        LogitsSource(path, dataset, 1, None).check(np.arange(60), dtype)
    assert str(path) in str(caught.value)


def test_log_probabilities_are_logits_and_rows_of_no_sample_may_hold_anything(case, tmp_path):
    dataset, logits = case
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    log_probs[5] = np.nan
    positions = np.arange(60)
    positions[5] = -1
    source = LogitsSource(write(tmp_path / "logits.npy", log_probs), dataset, 1, None)
    source.check(positions, "float16")
    with pytest.raises(InputError, match="row 5: expected finite logits"):
        source.check(np.arange(60), "float16")


@pytest.mark.parametrize("kind", FORMATS)
def test_wrong_types_and_shapes(case, tmp_path, kind):
    dataset, logits = case
    for wrong, message in (
        (logits[:, :9], r"expected logits \(N, classes\) = \(N, 10\) as in digits, found shape \(60, 9\)"),
        (np.arange(600).reshape(60, 10), "expected floating-point logits, found int64"),
    ):
        if kind in ("csv", "tsv") and wrong.dtype.kind == "i":
            continue  # numbers of a text are what they are
        with pytest.raises(InputError, match=message):
            LogitsSource(write(tmp_path / f"logits.{kind}", wrong), dataset, 1, None)
