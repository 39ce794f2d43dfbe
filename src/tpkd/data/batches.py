"""Batches ready for a network, the same for any number of loader workers."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from tpkd.data.dataset import Dataset, RawInputs
from tpkd.data.mixing import Mixing, Mixture, soft_labels
from tpkd.data.order import SampleOrder, choose_views
from tpkd.data.views import IDENTITY_VIEW, ViewRecipe
from tpkd.errors import InputError
from tpkd.termination import heed_parent_alone

ModelInputs: TypeAlias = Tensor | dict[str, Tensor]
Tokenize: TypeAlias = Callable[[list[str]], dict[str, Tensor]]
Positions: TypeAlias = Sequence[int] | NDArray[np.int64]


@dataclass(frozen=True)
class Preparation:
    """Turns raw samples into network inputs: images are rendered, texts tokenised, vectors passed through.

    Example:
        >>> from tpkd.data import load_dataset
        >>> from tpkd.data.views import DIGITS_VIEWS
        >>> digits = load_dataset("digits", "train")
        >>> Preparation(DIGITS_VIEWS).inputs(digits, [0, 1, 2], view_ids=[0, 3, 7]).shape
        torch.Size([3, 1, 8, 8])
    """

    recipe: ViewRecipe = IDENTITY_VIEW
    tokenize: Tokenize | None = None

    @property
    def num_views(self) -> int:
        """Number of fixed views per sample."""
        return self.recipe.num_views

    def inputs(self, dataset: Dataset, positions: Positions, view_ids: Positions | None = None) -> ModelInputs:
        """Inputs of the samples at these positions, in these views; without view ids, in the evaluation view."""
        raw = dataset.take(positions)
        if dataset.kind == "image":
            return self._images(raw, dataset.ids[np.asarray(positions)], view_ids)
        if self.num_views != 1:
            raise InputError(f"views: expected one view for {dataset.kind} data, found {self.num_views}")
        if dataset.kind == "vector":
            return torch.from_numpy(np.asarray(raw, np.float32))
        if self.tokenize is None:
            raise ValueError("tokenize: expected a tokenizer for text data, got None")
        return self.tokenize([str(text) for text in raw])

    def _images(self, raw: RawInputs, ids: NDArray[np.int64], view_ids: Positions | None) -> Tensor:
        images = raw if isinstance(raw, np.ndarray) else [np.asarray(image) for image in raw]
        return self.recipe.render_plain(images) if view_ids is None else self.recipe.render(images, ids, view_ids)


@dataclass(frozen=True)
class Partners:
    """What the images of a batch are mixed with."""

    sample_ids: Int[Tensor, "batch"]
    view_ids: Int[Tensor, "batch"]
    own_shares: Float[Tensor, "batch"]
    """How much of each mixed image is the sample's own rather than its partner's: the weight of mixup, or the share of
    pixels that CutMix left; float64."""

    def take(self, rows: slice | Tensor) -> "Partners":
        """Those of a part of the batch."""
        return Partners(self.sample_ids[rows], self.view_ids[rows], self.own_shares[rows])


@dataclass(frozen=True)
class SampleBatch:
    """The samples of one step: inputs, labels and ids."""

    inputs: ModelInputs
    labels: Int[Tensor, "batch"] | Float[Tensor, "batch K"]
    """Classes; probabilities where images are mixed; `NO_LABEL` for every sample of a part without labels."""
    sample_ids: Int[Tensor, "batch"]
    view_ids: Int[Tensor, "batch"]
    _: KW_ONLY
    partners: Partners | None = None
    """None where nothing is mixed."""

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.labels)

    def take(self, rows: slice | Tensor) -> "SampleBatch":
        """Part of the batch, by slice or by indices."""
        inputs = self.inputs
        chosen = {name: value[rows] for name, value in inputs.items()} if isinstance(inputs, dict) else inputs[rows]
        partners = None if self.partners is None else self.partners.take(rows)
        return SampleBatch(chosen, self.labels[rows], self.sample_ids[rows], self.view_ids[rows], partners=partners)


@dataclass(eq=False)
class TrainingBatches(TorchDataset[SampleBatch | InputError]):
    """Batch k of a run: the samples at the cursors k * batch_size up to (k + 1) * batch_size.

    Each process takes its own contiguous share of a batch, so the batches are the same for any number of processes.
    With `mixing`, a sample is mixed with another one of the same batch, whichever process has that one in its share;
    each process prepares the partners of its own samples.

    Example:
        >>> from tpkd.data import load_dataset
        >>> from tpkd.data.views import DIGITS_VIEWS
        >>> digits = load_dataset("digits", "train")
        >>> batches = TrainingBatches(digits, Preparation(DIGITS_VIEWS), seed=42, batch_size=64, num_samples=3 * 1078)
        >>> len(batches), len(batches[16]), len(batches[50])
        (51, 64, 34)
    """

    dataset: Dataset
    preparation: Preparation
    _: KW_ONLY
    seed: int
    batch_size: int
    """Over all processes."""
    num_samples: int
    """Number of samples over the whole run."""
    process: int = 0
    num_processes: int = 1
    mixing: Mixing | None = None
    """Mixup and CutMix of images."""

    def __post_init__(self) -> None:
        """Refuse empty batches, a process index out of range, and mixing of anything but images."""
        if self.batch_size < 1 or self.num_samples < 1:
            found = f"{self.batch_size} and {self.num_samples}"
            raise ValueError(f"batch_size, num_samples: expected at least 1, got {found}")
        if not 0 <= self.process < self.num_processes:
            raise ValueError(f"process: expected 0 to {self.num_processes - 1}, got {self.process}")
        if self.mixing is not None and self.dataset.kind != "image":
            raise ValueError(f"mixing: expected None for {self.dataset.kind} data, got {self.mixing}")
        self.order = SampleOrder(self.seed, len(self.dataset))

    def __len__(self) -> int:
        """Number of batches; the last may be smaller."""
        return -(-self.num_samples // self.batch_size)

    def __getitem__(self, number: int) -> SampleBatch | InputError:
        """Batch `number`; if a sample cannot be read, the error to raise instead."""
        start = number * self.batch_size
        size = min(self.batch_size, self.num_samples - start)
        first, last = (size * share // self.num_processes for share in (self.process, self.process + 1))
        positions, epochs = self.order.positions(start, start + size)
        view_ids = choose_views(self.seed, epochs, self.dataset.ids[positions], self.preparation.num_views)
        rows = np.arange(first, last)
        if self.mixing is None:
            return _sample_batch(self.dataset, self.preparation, positions[rows], view_ids[rows])
        mixture = self.mixing.draw(self.seed, number, size)
        # Each sample once, however often it is needed: a process that has the whole batch prepares nothing twice.
        needed, places = np.unique(np.concatenate([rows, mixture.partners(rows)]), return_inverse=True)
        loaded = _sample_batch(self.dataset, self.preparation, positions[needed], view_ids[needed])
        if isinstance(loaded, InputError):
            return loaded
        own, others = (loaded.take(torch.from_numpy(chosen)) for chosen in np.split(places, 2))
        return _mixed(own, others, mixture, self.dataset)


@dataclass(eq=False)
class PlainBatches(TorchDataset[SampleBatch | InputError]):
    """All samples once, in dataset order, in the evaluation view.

    Example:
        >>> from tpkd.data import load_dataset
        >>> from tpkd.data.views import DIGITS_VIEWS
        >>> batches = PlainBatches(load_dataset("digits", "test"), Preparation(DIGITS_VIEWS), batch_size=256)
        >>> [len(batch) for batch in load_batches(batches)]
        [256, 256, 207]
    """

    dataset: Dataset
    preparation: Preparation
    _: KW_ONLY
    batch_size: int

    def __post_init__(self) -> None:
        """Refuse empty batches."""
        if self.batch_size < 1:
            raise ValueError(f"batch_size: expected at least 1, got {self.batch_size}")

    def __len__(self) -> int:
        """Number of batches."""
        return -(-len(self.dataset) // self.batch_size)

    def __getitem__(self, number: int) -> SampleBatch | InputError:
        """Batch `number`; if a sample cannot be read, the error to raise instead."""
        start = number * self.batch_size
        positions = np.arange(start, min(start + self.batch_size, len(self.dataset)))
        return _sample_batch(self.dataset, self.preparation, positions, None)


def _sample_batch(
    dataset: Dataset, preparation: Preparation, positions: NDArray[np.int64], view_ids: NDArray[np.int64] | None
) -> SampleBatch | InputError:
    try:
        inputs = preparation.inputs(dataset, positions, view_ids)
    except InputError as error:
        # If raised in a worker, it would arrive wrapped in that worker's traceback.
        return error
    return SampleBatch(
        inputs=inputs,
        labels=torch.from_numpy(dataset.labels[positions]),
        sample_ids=torch.from_numpy(dataset.ids[positions]),
        view_ids=torch.from_numpy(np.zeros_like(positions) if view_ids is None else view_ids),
    )


def _mixed(own: SampleBatch, others: SampleBatch, mixture: Mixture, dataset: Dataset) -> SampleBatch:
    assert isinstance(own.inputs, Tensor)
    assert isinstance(others.inputs, Tensor)
    inputs, own_share = mixture.mix(own.inputs, others.inputs)
    own_shares = torch.full((len(own),), own_share, dtype=torch.float64)
    labels = own.labels
    if dataset.labelled:
        labels = soft_labels(own.labels, others.labels, own_shares, dataset.num_classes)
    partners = Partners(others.sample_ids, others.view_ids, own_shares)
    return SampleBatch(inputs, labels, own.sample_ids, own.view_ids, partners=partners)


def load_batches(
    batches: TrainingBatches | PlainBatches, *, start: int = 0, stop: int | None = None, workers: int = 0
) -> Generator[SampleBatch, None, None]:
    """The batches from `start` to `stop` in order, prefetched by `workers` processes, or made in this process if 0.

    Batches are pure functions of their number: the number of workers changes nothing, a resumed run starts at its next
    batch, and the global random state is not touched.

    Raises:
        InputError: a sample cannot be read; names its file.

    Example:
        >>> from tpkd.data import load_dataset
        >>> from tpkd.data.views import DIGITS_VIEWS
        >>> digits = load_dataset("digits", "train")
        >>> batches = TrainingBatches(digits, Preparation(DIGITS_VIEWS), seed=42, batch_size=64, num_samples=1078)
        >>> [batch.sample_ids[0].item() for batch in load_batches(batches, start=1, stop=3)]
        [211, 105]
    """
    numbers = range(start, len(batches) if stop is None else stop)
    # A loader draws a seed for its workers from the generator it is given, by default the global one.
    loader = DataLoader(
        batches,
        batch_size=None,
        sampler=numbers,
        num_workers=workers,
        generator=torch.Generator(),
        worker_init_fn=heed_parent_alone,
    )
    for batch in loader:
        if isinstance(batch, InputError):
            raise batch
        yield batch
