"""A cache of two million rows built by one, two and four builders at once, compared byte for byte.

`python -m benchmarks.cache_parts [--rows N] [--classes K]`. The teacher is a formula, so that files, journal and index
take most of the time. Ids are in order once, and in no order once.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.merge import merge_parts
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.verify import cache_info, verify_cache

COUNTS = (1, 2, 4)


def build(directory: Path, rows: int, num_classes: int, *, shuffled: bool, part: Part | None) -> None:
    """One cache, or a part of it, of logits that are a formula of the sample id."""
    ids = np.random.default_rng(0).permutation(rows) if shuffled else np.arange(rows)
    keys = CacheRows.of_views(ids, 1, lambda positions, views: torch.from_numpy(ids[positions]))
    columns = torch.arange(num_classes)
    build_cache(
        directory,
        keys,
        lambda samples: {"logits": torch.sin(samples[:, None] * 0.1 + columns)},
        CacheRecipe("formula", "numbers", {}, None, num_classes),
        part=part,
        block_rows=8192,
    )


def build_at_once(place: Path, total: int, arguments: argparse.Namespace, *, shuffled: bool) -> float:
    """Build all parts in processes of their own and merge them; returns the seconds that this took."""
    start, cache = time.perf_counter(), place / "cache"
    common = [sys.executable, "-m", "benchmarks.cache_parts", "--rows", arguments.rows, "--classes", arguments.classes]
    builders = [
        subprocess.Popen(
            [*map(str, common), "--build", cache, "--part", f"{number}/{total}", *["--shuffled"] * shuffled]
        )
        for number in range(1, total + 1)
    ]
    if any(builder.wait() for builder in builders):
        raise SystemExit("a builder failed")
    if total > 1:
        merge_parts([Part(number, total).place(cache) for number in range(1, total + 1)])
    return time.perf_counter() - start


def fingerprints(directory: Path) -> dict[str, str]:
    """SHA-256 of every file of a cache."""
    paths = sorted(path for path in directory.iterdir() if path.name != ".lock")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def compare(arguments: argparse.Namespace, *, shuffled: bool) -> None:
    """Build with each number of parts and compare with the first."""
    expected: dict[str, str] = {}
    for total in COUNTS:
        with tempfile.TemporaryDirectory() as place:
            seconds = build_at_once(Path(place), total, arguments, shuffled=shuffled)
            found = fingerprints(Path(place) / "cache")
            assert verify_cache(Path(place) / "cache").passes
            info = cache_info(Path(place) / "cache")
        expected = expected or found
        same = "equal bytes" if found == expected else "OTHER BYTES"
        order = "no order" if shuffled else "order"
        size = f"{info.rows:,} rows, ids in {order}, {len(found)} files, {(info.bytes + info.index_bytes) / 1e6:.1f} MB"
        print(f"{size}, {total} parts: {seconds:.1f} s, {same}", flush=True)
        if found != expected:
            raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--build", type=Path, help="build one part alone")
    parser.add_argument("--part", type=Part.parse, default=None)
    parser.add_argument("--shuffled", action="store_true")
    arguments = parser.parse_args()
    if arguments.build is not None:
        part = None if arguments.part.total == 1 else arguments.part
        place = arguments.build if part is None else part.place(arguments.build)
        build(place, arguments.rows, arguments.classes, shuffled=arguments.shuffled, part=part)
        return
    for shuffled in (False, True):
        compare(arguments, shuffled=shuffled)


if __name__ == "__main__":
    main()
