import io

import numpy as np
import pytest
import torch
from PIL import Image

from tpkd.data.batches import PlainBatches, Preparation, TrainingBatches, load_batches
from tpkd.data.dataset import Dataset
from tpkd.data.loading import load_dataset
from tpkd.data.order import SampleOrder, choose_views
from tpkd.data.views import DIGITS_VIEWS, ViewRecipe
from tpkd.errors import InputError

FIELDS = ("inputs", "labels", "sample_ids", "view_ids")
DIGITS = load_dataset("digits", "train")
PREPARATION = Preparation(DIGITS_VIEWS)


def training(batch_size=64, epochs=2, **settings):
    samples = epochs * len(DIGITS)
    return TrainingBatches(DIGITS, PREPARATION, seed=42, batch_size=batch_size, num_samples=samples, **settings)


def assert_same(first, second):
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        for name in FIELDS:
            assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_a_batch_is_order_views_and_rendering_put_together():
    batch = training()[20]
    positions, epochs = SampleOrder(42, len(DIGITS)).positions(20 * 64, 21 * 64)
    views = choose_views(42, epochs, DIGITS.ids[positions], 8)
    assert torch.equal(batch.inputs, DIGITS_VIEWS.render(DIGITS.inputs[positions], DIGITS.ids[positions], views))
    assert batch.labels.tolist() == DIGITS.labels[positions].tolist()
    assert batch.sample_ids.tolist() == DIGITS.ids[positions].tolist()
    assert batch.view_ids.tolist() == views.tolist()


def test_a_run_shows_every_sample_once_an_epoch():
    batches = training(batch_size=100, epochs=3)
    loaded = list(load_batches(batches))
    assert [len(batch) for batch in loaded] == [100] * 32 + [34]
    ids = torch.cat([batch.sample_ids for batch in loaded])
    for epoch in ids.split(len(DIGITS)):
        assert sorted(epoch.tolist()) == sorted(DIGITS.ids.tolist())


@pytest.mark.parametrize("workers", [2, 4])
def test_any_number_of_workers_gives_the_same_batches(workers):
    assert_same(list(load_batches(training(), stop=12, workers=workers)), list(load_batches(training(), stop=12)))


def test_a_resumed_run_goes_on_with_the_next_batch():
    whole = list(load_batches(training()))
    assert_same([*load_batches(training(), stop=19), *load_batches(training(), start=19)], whole)


@pytest.mark.parametrize("num_processes", [2, 3])
def test_processes_share_the_same_batches(num_processes):
    """Also the last batch, which is smaller and does not divide evenly."""
    shares = [training(process=process, num_processes=num_processes) for process in range(num_processes)]
    for number in (0, 16, len(training()) - 1):
        whole, parts = training()[number], [share[number] for share in shares]
        for name in FIELDS:
            assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))


@pytest.mark.parametrize("workers", [0, 2])
def test_loading_leaves_the_random_state_alone(workers):
    """Otherwise a resumed run, which starts its loader anew, would draw other dropout masks."""
    torch.manual_seed(0)
    state = torch.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()
    list(load_batches(training(), stop=3, workers=workers))
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)


def test_evaluation_takes_every_sample_in_order_and_plainly():
    batches = list(load_batches(PlainBatches(DIGITS, PREPARATION, batch_size=500)))
    assert torch.cat([batch.sample_ids for batch in batches]).tolist() == DIGITS.ids.tolist()
    assert torch.equal(torch.cat([batch.inputs for batch in batches]), DIGITS_VIEWS.render_plain(DIGITS.inputs))


def toy(kind, inputs):
    return Dataset("toy", "train", kind, inputs, np.zeros(len(inputs), np.int64), np.arange(len(inputs)), ("a", "b"))


def test_texts_are_tokenised():
    def lengths(texts):
        return {"input_ids": torch.tensor([[len(text)] for text in texts])}

    data = toy("text", ("a", "bb", "ccc"))
    assert Preparation(tokenize=lengths).inputs(data, [2, 0])["input_ids"].tolist() == [[3], [1]]
    batches = TrainingBatches(data, Preparation(tokenize=lengths), seed=0, batch_size=3, num_samples=3)
    assert sorted(next(load_batches(batches)).inputs["input_ids"].flatten().tolist()) == [1, 2, 3]
    with pytest.raises(ValueError, match="tokenize: expected a tokenizer for text data"):
        Preparation().inputs(data, [0])


def test_vectors_are_passed_on():
    vectors = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert torch.equal(Preparation().inputs(toy("vector", vectors), [4, 1]), torch.from_numpy(vectors[[4, 1]]))
    with pytest.raises(InputError, match="views: expected one view for vector data, found 8"):
        Preparation(ViewRecipe(num_views=8)).inputs(toy("vector", vectors), [0])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_image_is_named_in_one_line(tmp_path, workers):
    """Wherever it was decoded: a worker's traceback does not reach the user."""
    stream = io.BytesIO()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(stream, "png")
    for number in range(3):
        for folder in ("a", "b"):
            path = tmp_path / "train" / folder / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(stream.getvalue() if (folder, number) != ("b", 1) else b"no image")
    data = load_dataset(f"folder:{tmp_path}", "train")
    batches = PlainBatches(data, Preparation(), batch_size=2)
    with pytest.raises(InputError) as caught:
        list(load_batches(batches, workers=workers))
    assert str(caught.value).startswith(f"{tmp_path}/train/b/1.png: expected an image")
    assert "\n" not in str(caught.value)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="process: expected 0 to 1, got 2"):
        training(process=2, num_processes=2)
    with pytest.raises(ValueError, match="batch_size, num_samples: expected at least 1, got 0 and 2156"):
        training(batch_size=0)
    with pytest.raises(ValueError, match="batch_size: expected at least 1, got 0"):
        PlainBatches(DIGITS, PREPARATION, batch_size=0)
