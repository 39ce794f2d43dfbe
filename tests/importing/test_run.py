"""From a file to a run: what is imported is what is trained from, bound to the data, and never overwritten."""

import numpy as np
import pytest
import torch

from importing.files import FORMATS, answers, importing_config, top_k_arrays, write
from tpkd.data.configured import load_data
from tpkd.errors import InputError
from tpkd.files import sha256
from tpkd.importing import logits as logits_module
from tpkd.importing import run as module
from tpkd.importing.run import import_logits
from tpkd.teacher import caching
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.verify import cache_info
from tpkd.teacher.opening import given_test_logits
from tpkd.training.loop import train
from training.tiny import with_cache


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """Some digits and a teacher's logits of them."""
    dataset, logits = answers(importing_config(tmp_path_factory.mktemp("case")))
    return dataset, logits[:, 0]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_trains_and_gives_the_rows_of_the_file(case, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(logits_module, "rows_per_block", lambda size: 13)
    dataset, logits = case
    config, path = importing_config(tmp_path), write(tmp_path / f"logits.{kind}", logits)
    notes = []
    found = import_logits(config, path, on_note=notes.append)
    assert (found.directory, found.was_complete) == (tmp_path / "imported", False)
    cache = open_cache(found.directory)
    np.testing.assert_array_equal(cache.read(dataset.ids).numpy(), logits.astype(np.float16).astype(np.float32))
    right = np.mean(logits.argmax(1) == dataset.labels)
    assert notes == [f"The teacher is right on {100 * right:.1f} % of 60 cached rows."]
    assert train(config, tmp_path / "run").teacher_fingerprint == cache.answers_sha256
    assert caching.verify(found.directory, config).passes


def test_rows_by_id_are_those_of_their_samples_and_others_are_left_out(case, tmp_path):
    dataset, _ = case
    config = importing_config(tmp_path)
    whole = importing_config(tmp_path, limit=90)
    more, theirs = answers(whole)
    assert set(dataset.ids) < set(more.ids)
    order = np.random.default_rng(1).permutation(len(more))
    ids = tmp_path / "ids.npy"
    np.save(ids, more.ids[order])
    path, notes = write(tmp_path / "logits.npy", theirs[order, 0]), []
    import_logits(config, path, ids, on_note=notes.append)
    assert notes[0] == "30 of 90 rows belong to no training sample and are left out."
    places = {sample: place for place, sample in enumerate(more.ids.tolist())}
    expected = theirs[[places[sample] for sample in dataset.ids.tolist()], 0]
    found = open_cache(tmp_path / "imported").read(dataset.ids)
    np.testing.assert_array_equal(found.numpy(), expected.astype(np.float16).astype(np.float32))


def test_the_run_is_the_same_in_the_order_of_the_data_and_by_ids(case, tmp_path):
    dataset, logits = case
    order = np.random.default_rng(2).permutation(len(dataset))
    in_order = importing_config(tmp_path, [f"teacher.cache={tmp_path / 'a'}"])
    by_id = importing_config(tmp_path, [f"teacher.cache={tmp_path / 'b'}"])
    import_logits(in_order, write(tmp_path / "a.npy", logits))
    import_logits(by_id, write(tmp_path / "b.npz", logits[order], ids=dataset.ids[order]))
    results = [train(config, tmp_path / f"run-{name}") for name, config in (("a", in_order), ("b", by_id))]
    assert results[0].student_fingerprint == results[1].student_fingerprint
    assert results[0].teacher_fingerprint != results[1].teacher_fingerprint


def test_views_and_a_precision_of_ones_own(tmp_path):
    views = {"num_views": 3, "pad": 1, "scale": 16}
    config = importing_config(tmp_path, ["teacher.cache_dtype=float32"], views=views)
    dataset, logits = answers(config, views=3)
    import_logits(config, write(tmp_path / "logits.npy", logits))
    cache = open_cache(tmp_path / "imported")
    for view in range(3):
        np.testing.assert_array_equal(cache.read(dataset.ids, [view] * 60).numpy(), logits[:, view])
    assert train(config, tmp_path / "run").steps > 0
    with pytest.raises(InputError, match=r"teacher\.cache: .*preprocessing\.pad: expected 2, found 1"):
        train(importing_config(tmp_path, ["views.pad=2"], views=views), tmp_path / "other")


def test_the_largest_classes_become_a_truncated_cache_as_a_build_writes_it(case, tmp_path):
    """The same bytes as from all logits under teacher.top_k, but for what the cache was made from."""
    dataset, logits = case
    kept = importing_config(tmp_path, [f"teacher.cache={tmp_path / 'kept'}"])
    cut = importing_config(tmp_path, [f"teacher.cache={tmp_path / 'cut'}", "teacher.top_k=3"])
    path = tmp_path / "top.npz"
    np.savez(path, **top_k_arrays(logits, dataset.labels))
    notes = []
    import_logits(kept, path, on_note=notes.append)
    assert notes[0].startswith("Each row keeps: top 3 of 10 classes and the label, float16")
    import_logits(cut, write(tmp_path / "logits.npy", logits))
    shards = [(tmp_path / name / "shard-00000.safetensors").read_bytes() for name in ("kept", "cut")]
    assert shards[0] == shards[1]
    assert train(kept, tmp_path / "run").steps > 0
    assert caching.verify(tmp_path / "kept", cut).passes
    with pytest.raises(InputError, match=r"teacher\.top_k: expected 3 as in .*top\.npz, found 2"):
        import_logits(importing_config(tmp_path, ["teacher.top_k=2"]), path)


def test_the_manifest_names_the_files_and_their_hashes_and_no_folder(case, tmp_path):
    dataset, logits = case
    path, ids = write(tmp_path / "logits.npy", logits), tmp_path / "ids.npy"
    np.save(ids, dataset.ids)
    import_logits(importing_config(tmp_path), path, ids)
    info = cache_info(tmp_path / "imported")
    assert info.model_source == f"logits.npy SHA-256 {sha256(path)}; ids ids.npy SHA-256 {sha256(ids)}"
    assert info.recipe.model_fingerprint.startswith("imported-")
    assert info.recipe.dataset_fingerprint == dataset.fingerprint
    assert info.recipe.class_names == dataset.class_names
    assert str(tmp_path) not in (tmp_path / "imported" / "manifest.json").read_text()


def test_again_it_is_found_complete_and_another_file_is_refused(case, tmp_path):
    _, logits = case
    config, path = importing_config(tmp_path), write(tmp_path / "logits.npy", logits)
    import_logits(config, path)
    before = {file.name: file.read_bytes() for file in (tmp_path / "imported").iterdir()}
    assert import_logits(config, path).was_complete
    other = write(tmp_path / "other.npy", logits + 1)
    with pytest.raises(
        InputError, match=r"holds another cache imported from logits\.npy SHA-256 .*nothing is overwritten"
    ):
        import_logits(config, other)
    assert {file.name: file.read_bytes() for file in (tmp_path / "imported").iterdir()} == before
    shard = tmp_path / "imported" / "shard-00000.safetensors"
    shard.write_bytes(b"damaged")
    import_logits(config, path)  # what is damaged is written again
    assert shard.read_bytes() == before[shard.name]


def test_a_cache_that_was_built_is_not_overwritten(case, tmp_path):
    _, logits = case
    built = with_cache(tmp_path, limit=60, views={"scale": 16})
    config = importing_config(tmp_path, [f"teacher.cache={built.teacher.cache}"])
    with pytest.raises(InputError, match=r"holds another cache: model_fingerprint: expected 'imported-"):
        import_logits(config, write(tmp_path / "logits.npy", logits))


def test_an_import_that_was_killed_continues(case, tmp_path, monkeypatch):
    dataset, logits = case
    config, path = importing_config(tmp_path), write(tmp_path / "logits.npy", logits)
    monkeypatch.setattr(logits_module, "rows_per_block", lambda size: 7)
    monkeypatch.setattr(module, "BLOCK_ROWS", 5)
    build = module.build_cache
    monkeypatch.setattr(module, "build_cache", lambda *args, **more: build(*args, shard_rows=20, **more))

    def killed(progress):
        if progress.rows_done == 35:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_logits(config, path, on_progress=killed)
    assert 20 <= cache_info(tmp_path / "imported").rows_written < 60
    seen = []
    found = import_logits(config, path, on_progress=lambda progress: seen.append(progress.rows_done))
    assert not found.was_complete
    assert seen[0] >= 20
    np.testing.assert_array_equal(
        open_cache(found.directory).read(dataset.ids).half().numpy(), logits.astype(np.float16)
    )


def test_a_cache_is_bound_to_the_data_and_their_classes(case, tmp_path):
    _, logits = case
    import_logits(importing_config(tmp_path), write(tmp_path / "logits.npy", logits))
    for overrides, message in ((["limit=59"], "dataset_fingerprint"), (["views.pad=1"], r"preprocessing\.pad")):
        config = importing_config(tmp_path, overrides)
        with pytest.raises(InputError, match=message):
            train(config, tmp_path / "run")
        with pytest.raises(InputError, match=f"this cache was computed from something else: {message}"):
            caching.verify(tmp_path / "imported", config)


def test_a_wrong_order_is_told_by_the_accuracy(case, tmp_path):
    _, logits = case
    notes = []
    import_logits(importing_config(tmp_path), write(tmp_path / "logits.npy", logits[::-1].copy()), on_note=notes.append)
    assert notes[1].startswith("Warning: the teacher seems to know nothing of these labels")


def test_nothing_is_written_where_something_is_wrong(case, tmp_path):
    _, logits = case
    broken = logits.copy()
    broken[59, 9] = np.nan
    path = write(tmp_path / "logits.npy", broken)
    teacher = {"cache": str(tmp_path / "imported")}
    for config, more, message in (
        (importing_config(tmp_path), {}, "row 59: expected finite logits"),
        (importing_config(tmp_path, ["limit=61"]), {}, "expected 61 rows"),
        (
            importing_config(tmp_path, teacher=None, objective="ce"),
            {},
            r"teacher: missing, and teacher\.cache says where",
        ),
        (importing_config(tmp_path, teacher=teacher | {"model": "builtin:mlp"}), {}, r"teacher\.model: expected none"),
        (importing_config(tmp_path, teacher=teacher | {"layers": [1]}), {}, r"teacher\.layers: expected none"),
        (
            importing_config(tmp_path),
            {"teacher": 1},
            "--teacher: expected the number of a teacher from 0 to 0, found 1",
        ),
        (importing_config(tmp_path), {"ids": tmp_path / "none.txt"}, r"none\.txt: cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            import_logits(config, path, **more)
    assert not (tmp_path / "imported").exists()


def test_one_of_several_teachers(case, tmp_path):
    _, logits = case
    teachers = [{"cache": str(tmp_path / "a")}, {"cache": str(tmp_path / "b"), "weight": 3}]
    config = importing_config(tmp_path, teacher=None, teachers=teachers)
    other = np.roll(logits, 1, axis=1)
    with pytest.raises(InputError, match="--teacher: expected the number of a teacher from 0 to 1, found none"):
        import_logits(config, write(tmp_path / "a.npy", logits))
    import_logits(config, tmp_path / "a.npy", teacher=0)
    found = import_logits(config, write(tmp_path / "b.npy", other), teacher=1)
    assert found.directory == tmp_path / "b"
    assert train(config, tmp_path / "run").steps > 0
    broken = importing_config(tmp_path, ["teachers.1.model=builtin:mlp"], teacher=None, teachers=teachers)
    with pytest.raises(InputError, match=r"^teachers\.1\.model: expected none beside imported logits"):
        import_logits(broken, tmp_path / "b.npy", teacher=1)


def test_classes_of_another_order_are_mapped_by_name(case, tmp_path):
    dataset, logits = case
    names = tmp_path / "names.txt"
    names.write_text("\n".join(reversed(dataset.class_names)))
    config = importing_config(tmp_path, [f"teacher.class_names={names}"])
    import_logits(config, write(tmp_path / "logits.npy", logits[:, ::-1].copy()))
    found = open_cache(tmp_path / "imported").read(dataset.ids).half()
    assert torch.equal(found, torch.from_numpy(logits).half())
    assert train(config, tmp_path / "run").steps > 0


@pytest.mark.parametrize("kind", FORMATS)
def test_the_test_split_takes_the_same_formats(tmp_path, kind):
    config = importing_config(tmp_path, [f"teacher.test_logits={tmp_path / f'test.{kind}'}"])
    test = load_data(config, "test")
    logits = np.random.default_rng(0).normal(size=(len(test), 10)).astype(np.float32)
    write(tmp_path / f"test.{kind}", logits)
    np.testing.assert_allclose(given_test_logits(config, test).numpy(), logits, rtol=1e-6)
    write(tmp_path / f"test.{kind}", logits[:-1])
    with pytest.raises(InputError, match=rf"teacher\.test_logits: .*expected shape \({len(test)}, 10\)"):
        given_test_logits(config, test)


def test_samples_without_labels_take_all_classes(case, tmp_path):
    dataset, logits = case
    bare = {"data": {"name": "digits", "unlabelled": True}, "objective": "kl-dist"}
    config, notes = importing_config(tmp_path, **bare), []
    import_logits(config, write(tmp_path / "logits.npy", logits), on_note=notes.append)
    assert notes == []  # how often the teacher is right, nothing says
    assert train(config, tmp_path / "run").accuracy > 0
    np.savez(tmp_path / "largest.npz", **top_k_arrays(logits, dataset.labels))
    other = importing_config(tmp_path, [f"teacher.cache={tmp_path / 'other'}"], **bare)
    with pytest.raises(InputError, match=r"data\.unlabelled: expected all classes in .*largest\.npz, found some"):
        import_logits(other, tmp_path / "largest.npz")
    assert not (tmp_path / "other").exists()
