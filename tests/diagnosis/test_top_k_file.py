"""Files and caches of truncated teachers: every form says the same, and what does not fit is refused by key and row."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from diagnosis.files_of import write_files
from diagnosis.truncated_files import ALL, cut_arrays, write_arrays
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.run import diagnose_files
from tpkd.diagnosis.top_k_file import TopKFile
from tpkd.errors import InputError
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows

K, KEPT = 6, 3


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path)


@pytest.fixture
def arrays(files):
    return cut_arrays(files.zt, files.y, KEPT)


def run(files, path, **settings):
    return diagnose_files(open_inputs([files.student], path, files.labels), **settings)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt", ".parquet"])
@pytest.mark.parametrize("index_dtype", [np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_formats_and_integer_types_say_the_same(files, arrays, tmp_path, suffix, index_dtype):
    expected = run(files, write_arrays(tmp_path / "top.npz", arrays)).students
    other = arrays | {"indices": arrays["indices"].astype(index_dtype), "labels": files.y}
    record = run(files, write_arrays(tmp_path / f"other{suffix}", other))
    assert record.students == expected
    assert (record.truncation.k, record.truncation.dtype, record.truncation.rest_stored) == (KEPT, "float64", True)


def test_the_order_of_kept_classes_and_empty_places_do_not_matter(files, arrays, tmp_path):
    expected = run(files, write_arrays(tmp_path / "top.npz", arrays)).students[0]
    shuffled = np.random.default_rng(0).permuted(np.tile(np.arange(KEPT + 1), (len(files.y), 1)), axis=1)
    wide = {
        "log_probs": np.concatenate([arrays["log_probs"], np.full((len(files.y), 1), np.nan)], 1),
        "indices": np.concatenate([arrays["indices"], np.full((len(files.y), 1), -1)], 1),
    }
    wide = {name: np.take_along_axis(array, shuffled, 1) for name, array in wide.items()}
    found = run(files, write_arrays(tmp_path / "wide.npz", arrays | wide)).students[0]
    assert found.competence == expected.competence
    assert list(found.all.values()) == pytest.approx(list(expected.all.values()), rel=1e-12)


def test_one_array_of_any_name_is_a_whole_teacher(files, tmp_path):
    np.savez(tmp_path / "one.npz", log_probs=files.zt)
    record = run(files, tmp_path / "one.npz")
    assert record.truncation is None
    assert record.students == run(files, files.teacher).students


def without(*names):
    return lambda arrays: {name: array for name, array in arrays.items() if name not in names}


def changed(name, row, value):
    def change(arrays):
        array = arrays[name].copy()
        array[row] = value
        return arrays | {name: array}

    return change


def cast(name, dtype):
    return lambda arrays: arrays | {name: arrays[name].astype(dtype)}


def shaped(name, place):
    return lambda arrays: arrays | {name: arrays[name][place]}


BAD = {
    "both": (
        lambda a: a | {"logits": np.zeros((120, K))},
        r"top\.npz: expected either the logits of all .* found logits and log_probs",
    ),
    "no log_probs": (
        without("log_probs"),
        r"top\.npz: expected log_probs and indices .* found indices, label_log_probs",
    ),
    "bare indices": (without(*set(ALL) - {"indices"}), r"top\.npz: expected log_probs and indices .* found indices$"),
    "no indices": (
        without("indices"),
        r"expected log_probs and indices .* found label_log_probs, log_probs, rest_log_probs",
    ),
    "one axis": (shaped("log_probs", np.s_[:, 0]), r"top\.npz: log_probs: expected shape \(examples, kept classes\)"),
    "other shape": (
        shaped("indices", np.s_[:, :2]),
        r"top\.npz: indices: expected the shape of log_probs \(120, 3\), found",
    ),
    "float indices": (cast("indices", np.float32), r"top\.npz: indices: expected integer classes, found float32"),
    "integer values": (cast("log_probs", np.int64), r"top\.npz: log_probs: expected floating-point .* found int64"),
    "short rest": (
        shaped("rest_log_probs", np.s_[:5]),
        r"top\.npz: rest_log_probs: expected shape \(120,\), one number",
    ),
    "fewer rows": (
        lambda a: {name: array[:-1] for name, array in a.items()},
        r"student\.npy: expected 119 examples x 6 classes .* found 120 x 6",
    ),
    "class too large": (
        changed("indices", (119, 0), 6),
        r"top\.npz: indices: row 119: expected classes from 0 to 5, .* found 6",
    ),
    "class negative": (changed("indices", (119, 0), -2), r"indices: row 119: .* found -2"),
    "class twice": (
        changed("indices", (119, slice(None)), 4),
        r"indices: row 119: expected every class once, found class 4 twice",
    ),
    "nothing kept": (
        changed("indices", (119, slice(None)), -1),
        r"indices: row 119: expected at least one class, found none",
    ),
    "positive": (changed("log_probs", (119, 0), 0.5), r"log_probs: row 119: expected log-probabilities, .* found 0\.5"),
    "nan": (changed("log_probs", (119, 0), np.nan), r"log_probs: row 119: .* found nan"),
    "nan rest": (changed("rest_log_probs", 119, np.nan), r"rest_log_probs: row 119: .* found nan"),
    "wrong total": (
        changed("rest_log_probs", 119, -0.1),
        r"top\.npz: row 119: .* total of 1, found a total of 1\.[0-9]+",
    ),
    "label nowhere": (
        lambda a: {"log_probs": a["log_probs"][:, :1] - 30, "indices": np.full((120, 1), 5)},
        r"expected the label's log-probability for some examples, found it for none",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused_by_key_and_row_before_any_work(files, arrays, tmp_path, name):
    spoil, message = BAD[name]
    if name == "label nowhere":
        np.save(files.labels, np.zeros_like(files.y))
    path, done = write_arrays(tmp_path / "top.npz", spoil(arrays)), []
    with pytest.raises(InputError, match=message) as refused:
        run(files, path, block_elements=7 * K, advance=lambda student, rows: done.append(rows))
    assert str(refused.value).count("\n") == 0
    assert done == []


def test_logits_in_the_place_of_log_probabilities_are_refused(files, arrays, tmp_path):
    logits = np.take_along_axis(files.zt, arrays["indices"], 1)
    keys = {"log_probs": logits - logits.max(), "indices": arrays["indices"]}
    with pytest.raises(InputError, match=r"row \d+: expected log_probs to be log-probabilities .* are these logits"):
        run(files, write_arrays(tmp_path / "top.npz", keys))


def test_labels_other_than_those_of_the_teachers_file_are_refused(files, arrays, tmp_path):
    path = write_arrays(tmp_path / "top.npz", arrays)
    np.save(files.labels, np.roll(files.y, 1))
    with pytest.raises(InputError, match=r"top\.npz: .*row \d+: expected .* labels"):
        run(files, path)


def test_another_label_is_noticed_where_it_was_kept(files, arrays, tmp_path):
    """Without the stored total nothing adds up to one, and only the label's own number gives it away."""
    row = int(np.flatnonzero(arrays["indices"][:, 0] != files.y)[0])
    labels = files.y.copy()
    labels[row] = arrays["indices"][row, 0]
    np.save(files.labels, labels)
    del arrays["rest_log_probs"]
    message = rf"top\.npz: label_log_probs: row {row}: expected .*, which log_probs has for the label in .*labels\.npy"
    with pytest.raises(InputError, match=message):
        run(files, write_arrays(tmp_path / "top.npz", arrays))


def test_the_precision_of_the_file_decides_how_far_one_minus_the_kept_is_trusted(tmp_path):
    """Equal outputs pass the test of blocking, however the total of the others was rounded."""
    files = write_files(tmp_path, examples=400, num_classes=K)
    np.save(files.student, files.zt)
    arrays = cut_arrays(files.zt, files.y, KEPT)
    kept = {name: arrays[name] for name in ("log_probs", "indices", "label_log_probs")}
    # Rounded up, so that every kept class passes; what is left over for the others is then too little.
    half = {
        name: np.nextafter(kept[name].astype(np.float16), np.float16(0)) for name in ("log_probs", "label_log_probs")
    }
    student = run(files, write_arrays(tmp_path / "half.npz", kept | half)).students[0]
    assert student.blocked_share == 1.0


def test_soft_labels_are_refused_beside_a_truncated_teacher(files, arrays, tmp_path):
    np.save(files.labels, np.eye(K)[files.y])
    with pytest.raises(
        InputError, match=r"labels\.npy: expected integer class labels, found float64: .* top 3 classes"
    ):
        run(files, write_arrays(tmp_path / "top.npz", arrays))


def test_names_that_the_file_carries_must_be_those_of_the_students(files, arrays, tmp_path):
    path = write_arrays(tmp_path / "top.npz", arrays)
    (tmp_path / "names.txt").write_text("a\nb\nc\n")
    with pytest.raises(InputError, match=r"names\.txt: expected 6 class names as in .*top\.npz, found 3"):
        open_inputs([files.student], path, files.labels, class_names=tmp_path / "names.txt")


def make_cache(directory, files, views=1, top_k=KEPT):
    samples = np.arange(len(files.y)) * 10
    keys = CacheRows.of_views(samples, views, lambda positions, view: (positions, view), labels=files.y)
    recipe = CacheRecipe("weights", "data", {}, None, K, dtype="float32", top_k=top_k)

    def answer(key):
        return {"logits": torch.from_numpy(files.zt[key[0]] + key[1][:, None] * files.zt[::-1][key[0]])}

    build_cache(directory, keys, answer, recipe, shard_rows=50)
    return directory


def test_a_truncated_cache_is_a_file_of_the_same_rows(files, tmp_path):
    cache = make_cache(tmp_path / "cache", files)
    inputs = open_inputs([files.student], cache, files.labels)
    assert isinstance(inputs.teacher, TopKFile)
    record = diagnose_files(inputs)
    expected = run(files, write_arrays(tmp_path / "top.npz", cut_arrays(files.zt, files.y, KEPT, dtype=np.float32)))
    assert record.truncation == expected.truncation
    assert list(record.students[0].all.values()) == pytest.approx(list(expected.students[0].all.values()), rel=1e-5)


def test_ids_choose_the_rows_of_a_truncated_cache(files, tmp_path):
    cache = make_cache(tmp_path / "cache", files, views=2)
    with pytest.raises(InputError, match="every sample has 2 views"):
        open_inputs([files.student], cache, files.labels)
    order = np.random.default_rng(1).permutation(len(files.y))
    np.save(tmp_path / "ids.npy", np.stack([order * 10, order % 2], 1))
    np.save(files.labels, files.y[order])
    np.save(files.student, files.z[order])
    found = diagnose_files(open_inputs([files.student], cache, files.labels, ids=tmp_path / "ids.npy")).students[0]
    zt = files.zt + np.where(np.arange(len(files.y)) % 2, 1, 0)[:, None] * files.zt[::-1]
    arrays = cut_arrays(zt[order], files.y[order], KEPT, dtype=np.float32)
    expected = run(files, write_arrays(tmp_path / "top.npz", arrays)).students[0]
    assert list(found.all.values()) == pytest.approx(list(expected.all.values()), rel=1e-5)


def test_a_cache_is_bound_to_its_labels(files, tmp_path):
    """One label that was kept nowhere, and that no total gives away."""
    cache = make_cache(tmp_path / "cache", files, top_k=1)
    ranks = (-files.zt).argsort(1)
    row = int(np.flatnonzero((ranks[:, 0] != files.y) & (ranks[:, 5] != files.y))[0])
    labels = files.y.copy()
    labels[row] = ranks[row, 5]
    np.save(files.labels, labels)
    with pytest.raises(InputError, match=r"labels\.npy: expected the labels that .*cache was built with, found others"):
        diagnose_files(open_inputs([files.student], cache, files.labels))


def test_a_cache_of_other_classes_is_refused(files, tmp_path):
    np.save(files.student, files.z[:, :5])
    with pytest.raises(
        InputError, match=r"student\.npy: expected 120 examples x 6 classes as in .*cache, found 120 x 5"
    ):
        open_inputs([files.student], make_cache(tmp_path / "cache", files), files.labels)


def test_a_teacher_that_answers_nothing_but_the_label_has_nothing_to_teach(files, tmp_path):
    """Certain of the label: nothing is known about the others, and every number stays finite."""
    arrays = {
        "log_probs": np.zeros((120, 1)),
        "indices": files.y[:, None],
        "label_log_probs": np.zeros(120),
        "rest_log_probs": np.full(120, -np.inf),
    }
    student = run(files, write_arrays(tmp_path / "top.npz", arrays)).students[0]
    assert student.all["conditional_loss"] == student.all["transfer_cost"] == 0.0
    assert student.all["imitation_loss"] == pytest.approx(student.all["label_loss"], rel=1e-9)
    assert set(student.frontier.values) == {0.0}
    assert all(example.teacher_competitors == () for example in student.costliest)
    assert replace(student, file="").competence.teacher_accuracy == 1.0
