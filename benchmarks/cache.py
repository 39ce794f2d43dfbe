"""What a teacher cache costs: reading a batch, and building beside the bare teacher; `python -m benchmarks.cache`."""

import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
from benchmarks.timing import paired_ratio

from tpkd.data.views import ViewRecipe
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.read import TeacherCache, open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows

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


def build_ratio(*, samples: int = 64, num_classes: int = 100, block: int = 64, pairs: int = 10) -> float:
    """Time of a build from raw images in eight views over that of a ResNet-56 on the same batches, rendered before."""
    teacher = build_model(ModelSpec("builtin:resnet56", num_classes=num_classes)).eval()
    images = np.random.default_rng(0).integers(0, 256, (samples, 32, 32, 3), dtype=np.uint8)
    views = ViewRecipe(num_views=8, pad=4, flip=True)
    rows = CacheRows.of_views(np.arange(samples), 8, lambda ids, view_ids: views.render(images[ids], ids, view_ids))
    recipe = CacheRecipe("resnet56", "random", {}, None, num_classes)
    rendered = [rows.inputs(start, start + block) for start in range(0, len(rows), block)]

    def bare() -> None:
        with torch.inference_mode():
            for inputs in rendered:
                teacher(inputs)

    def build() -> None:
        with tempfile.TemporaryDirectory() as directory:
            build_cache(directory, rows, lambda inputs: {"logits": teacher(inputs)}, recipe, block_rows=block)

    return paired_ratio(build, bare, pairs=pairs)


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
