import threading

import numpy as np
import pytest
import torch

from teacher.cache.toys import NUM_CLASSES, Teacher, assert_true_rows, make_recipe, make_rows
from tpkd.errors import InputError
from tpkd.geometry.top_k import TopK
from tpkd.teacher.cache.build import BuildProgress, build_cache
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.verify import cache_info


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.startswith(".")}


@pytest.mark.parametrize(("shard_rows", "block_rows"), [(1, 1), (10, 4), (10, 64), (64, 10), (69, 69), (1000, 7)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("top_k", [None, 1, 3, 5])
def test_every_row_is_the_teachers_however_the_rows_are_cut(tmp_path, shard_rows, block_rows, dtype, top_k):
    rows, recipe = make_rows(), make_recipe(dtype=dtype, top_k=top_k)
    build_cache(tmp_path, rows, Teacher(), recipe, shard_rows=shard_rows, block_rows=block_rows)
    cache = open_cache(tmp_path, expected=recipe)
    order = np.random.default_rng(0).permutation(len(rows))
    samples, views = rows.sample_ids[order], rows.view_ids[order]
    found = cache.read(samples, views)
    assert top_k == (found.k if isinstance(found, TopK) else None)
    assert_true_rows(found, samples, views, dtype)


def test_a_build_forwards_every_row_once_and_reading_none(tmp_path):
    teacher, rows = Teacher(), make_rows()
    build_cache(tmp_path, rows, teacher, make_recipe(), shard_rows=10, block_rows=4)
    assert sorted(teacher.rows_seen) == sorted(zip(rows.sample_ids, rows.view_ids, strict=True))
    for _ in range(3):
        open_cache(tmp_path).read(rows.sample_ids, rows.view_ids)
    build_cache(tmp_path, rows, teacher, make_recipe())
    assert len(teacher.rows_seen) == len(rows)


def test_the_teacher_runs_without_gradient(tmp_path):
    linear = torch.nn.Linear(2, NUM_CLASSES)
    build_cache(tmp_path, make_rows(), lambda keys: {"logits": linear(torch.tensor(keys) / 1e5)}, make_recipe())
    assert linear.weight.grad is None


def test_preparing_inputs_takes_no_core_from_the_model(tmp_path):
    """A second team of OpenMP threads on the same cores would slow the model down; nothing of it remains after."""
    before, seen = torch.get_num_threads(), {}
    keys = make_rows()

    def inputs(start, stop):
        seen["loader"] = torch.get_num_threads()
        return keys.inputs(start, stop)

    def forward(inputs):
        seen["model"] = torch.get_num_threads()
        raise InputError("the first rows are enough")

    torch.set_num_threads(3)
    try:
        with pytest.raises(InputError, match="enough"):
            build_cache(tmp_path, CacheRows(keys.sample_ids, keys.view_ids, inputs), forward, make_recipe())
        later = threading.Thread(target=lambda: seen.update(later=torch.get_num_threads()))
        later.start()
        later.join()
    finally:
        torch.set_num_threads(before)
    assert seen == {"loader": 3 if torch.accelerator.is_available() else 1, "model": 3, "later": 3}


def test_further_tensors_ride_along(tmp_path):
    rows, recipe = make_rows(), make_recipe(tensors={"layer.1": 2, "layer.2": 7})

    def forward(keys):
        keys = torch.tensor(keys, dtype=torch.float32)
        return {**Teacher()(keys), "layer.1": keys / 2**17, "layer.2": keys[:, :1] / 2**17 + torch.arange(7)}

    build_cache(tmp_path, rows, forward, recipe, shard_rows=10, block_rows=4)
    cache = open_cache(tmp_path, expected=recipe)
    samples, views = rows.sample_ids[::-1], rows.view_ids[::-1]
    expected = forward(np.stack([samples, views], 1))
    for name in ("layer.1", "layer.2"):
        assert torch.equal(cache.read_tensor(name, samples, views), expected[name].half().float())
    assert torch.equal(cache.read(samples, views), expected["logits"].half().float())
    with pytest.raises(InputError, match=r"expected a tensor logits, layer\.1, layer\.2, found 'layer\.3' asked for"):
        cache.read_tensor("layer.3", samples, views)


@pytest.mark.parametrize("top_k", [None, 2])
@pytest.mark.parametrize("damage", ["interrupt", "delete", "flip", "orphan"])
def test_a_resumed_build_ends_with_the_bytes_of_one_that_was_not_stopped(tmp_path, damage, top_k):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    rows, recipe = make_rows(), make_recipe(dtype="float32", top_k=top_k)
    build_cache(whole, rows, Teacher(), recipe, shard_rows=10, block_rows=4)
    if damage == "interrupt":
        first = Teacher()

        def forward(keys):
            if len(first.rows_seen) >= 34:
                raise KeyboardInterrupt
            return first(keys)

        with pytest.raises(KeyboardInterrupt):
            build_cache(stopped, rows, forward, recipe, shard_rows=10, block_rows=4)
        remaining = len(rows) - 30
    else:
        build_cache(stopped, rows, Teacher(), recipe, shard_rows=10, block_rows=4)
        victim = stopped / "shard-00002.safetensors"
        if damage == "delete":
            victim.unlink()
        elif damage == "flip":
            data = bytearray(victim.read_bytes())
            data[-1] ^= 1
            victim.write_bytes(data)
        else:
            (stopped / ".shard-00002.safetensors.abc.partial").write_bytes(b"half")
        remaining = 0 if damage == "orphan" else 10
    second = Teacher()
    # An existing cache keeps its own rows a file.
    build_cache(stopped, rows, second, recipe, shard_rows=1000, block_rows=4)
    assert len(second.rows_seen) == remaining
    assert files_of(stopped) == files_of(whole)
    assert {path.name for path in stopped.iterdir()} - files_of(stopped).keys() == {".lock"}


def test_shards_are_cut_by_bytes(tmp_path):
    row = 8 + 8 + 1 + 2 * NUM_CLASSES
    build_cache(tmp_path, make_rows(), Teacher(), make_recipe(), shard_bytes=10 * row + 5)
    assert cache_info(tmp_path).shard_rows == 10
    build_cache(tmp_path / "default", make_rows(), Teacher(), make_recipe())
    assert (cache_info(tmp_path / "default").shards, cache_info(tmp_path / "default").shard_rows) == (1, 8192)


def test_bytes_are_known_before_the_first_forward_and_time_after_it(tmp_path):
    rows, recipe, teacher, seen = make_rows(), make_recipe(), Teacher(), []

    def on_progress(progress):
        seen.append((progress, len(teacher.rows_seen)))

    build_cache(tmp_path, rows, teacher, recipe, shard_rows=20, block_rows=10, on_progress=on_progress)
    first, forwards = seen[0]
    assert forwards == 0
    row = 8 + 8 + 1 + 2 * NUM_CLASSES  # two ids, one flag, logits in float16
    assert first == BuildProgress(rows_done=0, rows_total=69, bytes_total=69 * row, seconds_left=None)
    assert [progress.rows_done for progress, _ in seen] == [0, 10, 20, 30, 40, 50, 60, 69]
    assert all(progress.seconds_left >= 0 for progress, _ in seen[1:])
    assert seen[-1][0].seconds_left == 0
    headers = cache_info(tmp_path).bytes - first.bytes_total
    assert 0 < headers < 4 * 500
    again = []
    build_cache(tmp_path, rows, teacher, recipe, on_progress=again.append)
    assert [progress.rows_done for progress in again] == [69]


def test_the_estimate_follows_the_speed(tmp_path, monkeypatch):
    clock = iter(range(0, 1000, 5))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    seen = []
    build_cache(tmp_path, make_rows(20, 1), Teacher(), make_recipe(), block_rows=5, on_progress=seen.append)
    # The clock moves 5 s a look: at the start, at the first report, then once a block.
    assert [progress.seconds_left for progress in seen] == [None, 30.0, 15.0, pytest.approx(20 / 3), 0.0]


def with_value(bad, dtype, match, tmp_path, tensor="logits", top_k=None):
    rows, recipe = make_rows(), make_recipe(dtype=dtype, tensors={"pooled": 3}, top_k=top_k)

    def forward(keys):
        outputs = {**Teacher()(keys), "pooled": torch.zeros(len(keys), 3)}
        for row, (sample, view) in enumerate(keys.tolist()):
            if (sample, view) == (rows.sample_ids[35], rows.view_ids[35]):
                outputs[tensor][row, 2] = bad
        return outputs

    with pytest.raises(InputError, match=f"sample {rows.sample_ids[35]}, view {rows.view_ids[35]}: {match}"):
        build_cache(tmp_path, rows, forward, recipe, shard_rows=10, block_rows=4)
    assert cache_info(tmp_path).rows_written == 30


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("tensor", ["logits", "pooled"])
@pytest.mark.parametrize("top_k", [None, 2])
def test_a_value_that_is_not_finite_is_refused_by_sample_and_view(tmp_path, dtype, bad, tensor, top_k):
    with_value(bad, dtype, rf"{tensor}\[2\]: expected a finite value, found {bad}", tmp_path, tensor, top_k)


def test_a_value_beyond_float16_is_refused_and_float32_named(tmp_path):
    match = r"logits\[2\]: expected a value that float16 holds; set dtype to float32, found -70000"
    with_value(-70000.0, "float16", match, tmp_path)


@pytest.mark.parametrize(
    ("outputs", "match"),
    [
        (lambda n: {"logits": torch.zeros(n, 4)}, r"logits: expected floating-point values of shape \(64, 5\), found"),
        (lambda n: {"logits": torch.zeros(n + 1, 5)}, r"found torch.float32 of shape \(65, 5\)"),
        (lambda n: {"logits": torch.zeros(n, 5, dtype=torch.int64)}, "found torch.int64"),
        (lambda n: {}, "forward: expected outputs logits, found "),
        (lambda n: {"logits": torch.zeros(n, 5), "x": torch.zeros(n, 5)}, "expected outputs logits, found logits, x"),
    ],
)
@pytest.mark.parametrize("top_k", [None, 2])
def test_outputs_that_do_not_fit_the_recipe_are_refused(tmp_path, outputs, match, top_k):
    with pytest.raises(InputError, match=match):
        build_cache(tmp_path, make_rows(), lambda keys: outputs(len(keys)), make_recipe(top_k=top_k))


@pytest.mark.parametrize("name", ["shard_bytes", "shard_rows", "block_rows"])
def test_sizes_below_one_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
        build_cache(tmp_path, make_rows(), Teacher(), make_recipe(), **{name: 0})


def test_another_cache_is_refused_and_left_alone(tmp_path):
    build_cache(tmp_path, make_rows(), Teacher(), make_recipe(), shard_rows=10)
    before, teacher = files_of(tmp_path), Teacher()
    for rows, recipe, match in [
        (make_rows(), make_recipe(model_fingerprint="new"), "model_fingerprint: expected 'new', found 'weights'"),
        (make_rows(23, 2), make_recipe(), r"rows: expected keys \w+… of 46 rows, found \w+… of 69 rows"),
        (CacheRows(make_rows().sample_ids[::-1], make_rows().view_ids, lambda *_: None), make_recipe(), "rows: exp"),
    ]:
        with pytest.raises(InputError, match=f"holds another cache: {match}"):
            build_cache(tmp_path, rows, teacher, recipe)
    assert files_of(tmp_path) == before
    assert not teacher.rows_seen


def test_a_directory_of_other_things_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"expected an empty directory or a teacher cache, found thesis\.tex"):
        build_cache(tmp_path, make_rows(), Teacher(), make_recipe())
    with pytest.raises(InputError, match=r"thesis\.tex: cannot be written: "):
        build_cache(tmp_path / "thesis.tex", make_rows(), Teacher(), make_recipe())
    assert files_of(tmp_path) == {"thesis.tex": b"precious"}


def test_a_disk_without_room_is_refused_before_the_first_forward(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    teacher = Teacher()
    with pytest.raises(InputError, match="expected room for 0 MB more, found 0 MB free"):
        build_cache(tmp_path, make_rows(), teacher, make_recipe())
    assert not teacher.rows_seen
