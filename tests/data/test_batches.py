import io

import numpy as np
import pytest
import torch
from PIL import Image

from tpkd.data.batches import PlainBatches, Preparation, TrainingBatches, load_batches
from tpkd.data.dataset import Dataset
from tpkd.data.loading import load_dataset
from tpkd.data.mixing import Mixing
from tpkd.data.order import SampleOrder, choose_views
from tpkd.data.views import DIGITS_VIEWS, ViewRecipe
from tpkd.errors import InputError

FIELDS = ("inputs", "labels", "sample_ids", "view_ids")
PARTNER_FIELDS = ("sample_ids", "view_ids", "own_shares")
MIXINGS = [None, Mixing(mixup=0.4), Mixing(cutmix=1.0), Mixing(mixup=1.0, cutmix=1.0)]
mixings = pytest.mark.parametrize("mixing", MIXINGS, ids=["plain", "mixup", "cutmix", "both"])
DIGITS = load_dataset("digits", "train")
PREPARATION = Preparation(DIGITS_VIEWS)


def training(batch_size=64, epochs=2, **settings):
    samples = epochs * len(DIGITS)
    return TrainingBatches(DIGITS, PREPARATION, seed=42, batch_size=batch_size, num_samples=samples, **settings)


def assert_same(first, second):
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        for name, value in columns(one).items():
            assert torch.equal(value, columns(other)[name]), name


def columns(batch):
    """Every tensor of a batch, by name."""
    partners = (
        {} if batch.partners is None else {f"partner {name}": getattr(batch.partners, name) for name in PARTNER_FIELDS}
    )
    return {name: getattr(batch, name) for name in FIELDS} | partners


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


@mixings
@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers_gives_the_same_batches(workers, mixing):
    batches = training(mixing=mixing)
    assert_same(list(load_batches(batches, stop=12, workers=workers)), list(load_batches(batches, stop=12)))


@mixings
def test_a_resumed_run_goes_on_with_the_next_batch(mixing):
    whole = list(load_batches(training(mixing=mixing)))
    again = training(mixing=mixing)
    assert_same([*load_batches(again, stop=19), *load_batches(again, start=19)], whole)


@mixings
@pytest.mark.parametrize("num_processes", [2, 3])
def test_processes_share_the_same_batches(num_processes, mixing):
    """Also the last batch, which is smaller and does not divide evenly."""
    alone = training(mixing=mixing)
    shares = [training(process=process, num_processes=num_processes, mixing=mixing) for process in range(num_processes)]
    for number in (0, 16, len(alone) - 1):
        whole, parts = columns(alone[number]), [columns(share[number]) for share in shares]
        for name, value in whole.items():
            assert torch.equal(torch.cat([part[name] for part in parts]), value), name


@mixings
@pytest.mark.parametrize("micro", [1, 7, 64])
def test_pieces_of_a_batch_are_the_batch(micro, mixing):
    batch = training(mixing=mixing)[3]
    pieces = [columns(batch.take(slice(start, start + micro))) for start in range(0, 64, micro)]
    for name, value in columns(batch).items():
        assert torch.equal(torch.cat([piece[name] for piece in pieces]), value), name


class TestMixing:
    @pytest.mark.parametrize("mixing", MIXINGS[1:], ids=["mixup", "cutmix", "both"])
    def test_a_batch_is_the_plain_batch_mixed_with_itself(self, mixing):
        """Also one that crosses from one epoch into the next, and the last, smaller one."""
        for number in (0, 3, 16, 33):
            plain, batch = training()[number], training(mixing=mixing)[number]
            mixture = mixing.draw(42, number, len(plain))
            partners = plain.take(torch.arange(len(plain)).roll(-mixture.shift))
            inputs, own_share = mixture.mix(plain.inputs, partners.inputs)
            assert torch.equal(batch.inputs, inputs)
            assert torch.equal(batch.sample_ids, plain.sample_ids)
            assert torch.equal(batch.view_ids, plain.view_ids)
            assert torch.equal(batch.partners.sample_ids, partners.sample_ids)
            assert torch.equal(batch.partners.view_ids, partners.view_ids)
            assert batch.partners.own_shares.tolist() == [own_share] * len(plain)
            assert (batch.labels.dtype, batch.labels.shape) == (torch.float32, (len(plain), 10))
            assert not (batch.sample_ids == batch.partners.sample_ids).all()
            assert (batch.inputs != plain.inputs).any() == (own_share < 1)

    def test_the_label_is_the_share_of_pixels(self):
        """Ones in the place of one image and zeros in that of its partner: what is left of the ones is the label."""
        lit = np.arange(40) % 2
        pixels = np.repeat(lit, 11 * 11).reshape(40, 11, 11, 1).astype(np.uint8)
        data = Dataset("toy", "train", "image", pixels, lit.astype(np.int64), np.arange(40), ("dark", "lit", "no"))
        views = Preparation(ViewRecipe(scale=1))
        shares = set()
        for mixing in (Mixing(cutmix=1.0), Mixing(mixup=1.0)):
            for batch in load_batches(
                TrainingBatches(data, views, seed=7, batch_size=10, num_samples=200, mixing=mixing)
            ):
                lit_pixels = batch.inputs.double().sum((1, 2, 3))
                if mixing.cutmix:
                    assert torch.equal(lit_pixels, lit_pixels.round())
                    assert torch.equal((lit_pixels / 121).float(), batch.labels[:, 1])
                else:
                    torch.testing.assert_close(lit_pixels / 121, batch.labels[:, 1].double(), rtol=0, atol=1e-7)
                shares |= set(batch.labels[:, 1].tolist())
        assert len(shares) > 40

    def test_a_process_prepares_only_its_share_and_their_partners(self):
        asked = []

        class Counting(Preparation):
            def inputs(self, dataset, positions, view_ids=None):
                asked.append(len(positions))
                return super().inputs(dataset, positions, view_ids)

        def of(**settings):
            views = Counting(DIGITS_VIEWS)
            return TrainingBatches(
                DIGITS, views, seed=42, batch_size=64, num_samples=640, mixing=Mixing(mixup=1.0), **settings
            )

        of()[0]
        assert asked == [64]
        for process in range(4):
            of(process=process, num_processes=4)[0]
        assert all(16 < count <= 32 for count in asked[1:])

    def test_a_batch_of_one_is_left_as_it_is(self):
        batches = TrainingBatches(DIGITS, PREPARATION, seed=0, batch_size=9, num_samples=10, mixing=Mixing(mixup=1.0))
        plain = TrainingBatches(DIGITS, PREPARATION, seed=0, batch_size=9, num_samples=10)
        assert torch.equal(batches[1].inputs, plain[1].inputs)
        assert batches[1].labels.tolist() == torch.nn.functional.one_hot(plain[1].labels, 10).tolist()

    def test_only_images_are_mixed(self):
        vectors = toy("vector", np.zeros((4, 3), np.float32))
        with pytest.raises(ValueError, match="mixing: expected None for vector data, got Mixing"):
            TrainingBatches(vectors, Preparation(), seed=0, batch_size=2, num_samples=4, mixing=Mixing(mixup=1.0))

    def test_a_broken_image_is_still_named(self, tmp_path):
        for number in range(4):
            path = tmp_path / "train" / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"no image")
        data = load_dataset(f"folder:{tmp_path}", "train")
        mixing = Mixing(cutmix=1.0)
        batches = TrainingBatches(data, Preparation(), seed=0, batch_size=2, num_samples=4, mixing=mixing)
        with pytest.raises(InputError, match="expected an image"):
            list(load_batches(batches))


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
