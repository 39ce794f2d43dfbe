"""What a teacher cache costs: reading a batch, and building beside the bare teacher; `python -m benchmarks.cache`."""

import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch

from tpkd.cache import CacheRecipe, CacheRows, TeacherCache, build_cache, open_cache
from tpkd.models import build_model

MOST_READ_MS = 0.1
"""A batch of 64 rows may take this long to read."""
MOST_BUILD = 1 / 0.95
"""A build may take this many times the bare forward passes."""


def elapsed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def random_cache(directory: str, samples: int, views: int, num_classes: int) -> TeacherCache:
    """A cache of the paper's vision protocol in size, of random logits."""
    rows = CacheRows.of_views(np.arange(samples), views, lambda positions, views: len(positions))
    recipe = CacheRecipe("random", "random", {}, None, num_classes)
    build_cache(directory, rows, lambda count: {"logits": torch.randn(count, num_classes)}, recipe, block_rows=8192)
    return open_cache(directory)


def read_milliseconds(cache: TeacherCache, *, batch: int = 64, batches: int = 500, repeats: int = 7) -> float:
    """Median over repeats of the mean time of a read, samples and views drawn at random."""
    generator = np.random.default_rng(0)
    samples = generator.integers(0, cache.sample_ids.max() + 1, (batches, batch))
    views = generator.integers(0, cache.num_views, (batches, batch))

    def read_all() -> None:
        for ids, view_ids in zip(samples, views, strict=True):
            cache.read(ids, view_ids)

    read_all()  # the pages come from disk once
    return statistics.median(elapsed(read_all) for _ in range(repeats)) / batches * 1000


def build_ratio(*, samples: int = 256, num_classes: int = 100, block: int = 64, repeats: int = 5) -> float:
    """Median time of a build over that of the forward passes alone, of a ResNet-56, taken in turns."""
    teacher = build_model("builtin:resnet56", num_classes=num_classes).eval()
    images = torch.randn(samples, 3, 32, 32)
    rows = CacheRows.of_views(np.arange(samples), 1, lambda positions, views: images[positions])
    recipe = CacheRecipe("resnet56", "random", {}, None, num_classes)

    def bare() -> None:
        with torch.inference_mode():
            for start in range(0, samples, block):
                teacher(images[start : start + block])

    def build() -> None:
        with tempfile.TemporaryDirectory() as directory:
            build_cache(directory, rows, lambda inputs: {"logits": teacher(inputs)}, recipe, block_rows=block)

    times = [(elapsed(build), elapsed(bare)) for _ in range(repeats + 1)][1:]  # the first round warms up
    return statistics.median(built for built, _ in times) / statistics.median(forward for _, forward in times)


def rows() -> list[tuple[str, float, float]]:
    """(what, measured, most) for each promise."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as directory:
        cache = random_cache(directory, 50_000, 8, 100)
        read = read_milliseconds(cache)
    return [
        ("reading 64 of 400,000 rows of 100 classes, milliseconds", read, MOST_READ_MS),
        ("building a cache with a ResNet-56 over its bare forward passes, ratio", build_ratio(), MOST_BUILD),
    ]


def main() -> None:
    print("| what | measured | at most |\n|---|---|---|")
    for what, measured, most in rows():
        print(f"| {what} | {measured:.3f} | {most:.3f} |")


if __name__ == "__main__":
    main()
