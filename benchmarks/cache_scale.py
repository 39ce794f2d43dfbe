"""What opening a cache of 100 million rows costs, and a look-up in it; `python -m benchmarks.cache_scale`.

The cache is simulated: manifest, journal and index are whole, the shards are files of the right size without content.
Each measurement of memory has a process of its own. The index of version 0.1, a table of all rows in memory, is kept
here to compare with, on as many rows as it takes in a few seconds.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.timing import paired_ratio

from tpkd.files import sha256
from tpkd.teacher.cache.entries import INDEX_NAME, IndexEntry, ShardEntry
from tpkd.teacher.cache.index import FENCE, SortedIndex, index_layout, write_index
from tpkd.teacher.cache.journal import JOURNAL_NAME, begin_journal, encode_line
from tpkd.teacher.cache.manifest import Manifest
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.runs import Run, RunIndex
from tpkd.teacher.cache.shards import rows_per_shard, shard_layout, shard_name
from tpkd.teacher.cache.tensors import file_bytes, header_bytes, tensor_places

ROWS = 100_000_000
COMPARED_ROWS = 2_000_000
MOST_SECONDS = 1.0
MOST_MEGABYTES = 100.0
MOST_LOOK_UP_MS = 0.1
MOST_RATIO = 1.0
"""The index of version 0.1 may not be better in anything."""
BATCH = 64
STEP = 3
"""Between two sample ids of a simulated cache whose ids are not in order."""
_BLOCK = 1 << 22


class TableOfRows:
    """The index of version 0.1: all keys, all samples in order, and a table of rows, in memory."""

    def __init__(self, sample_ids: np.ndarray, view_ids: np.ndarray) -> None:
        rows = np.arange(len(sample_ids))
        self.sample_ids, self.view_ids = sample_ids.copy(), view_ids.copy()
        self.samples, self.width = np.unique(sample_ids), 1 + int(view_ids.max())
        places = self.samples.searchsorted(sample_ids) * self.width + view_ids
        self.table = np.full(len(self.samples) * self.width, -1)
        self.table[places] = rows

    def find(self, sample_ids: np.ndarray, view_ids: np.ndarray) -> np.ndarray:
        places = self.samples.searchsorted(sample_ids) * self.width + view_ids
        rows = self.table.take(places, mode="clip")
        same = (self.sample_ids.take(rows) == sample_ids) & (self.view_ids.take(rows) == view_ids)
        return np.where(same, rows, -1)


def simulate(directory: Path, rows: int, *, in_order: bool) -> None:
    """Manifest, journal, index and empty shards of a cache of 100 classes with one view."""
    recipe = CacheRecipe("simulated", "simulated", {}, None, 100)
    blank = Manifest("", recipe, rows, rows, 1, "0" * 64, rows_per_shard(recipe, rows))
    manifest = replace(blank, fingerprint=blank.binding_sha256())
    manifest.publish(directory)
    end, lines = begin_journal(manifest.fingerprint), []
    for index in manifest.shard_numbers:
        first, last = manifest.bounds(index)
        size = file_bytes(shard_layout(recipe, last - first))
        with (directory / shard_name(index)).open("wb") as file:
            file.truncate(size)
        entry = ShardEntry(shard_name(index), last - first, size, "0" * 64, (first, 0), (last - 1, 0))
        line, end = encode_line(replace(entry, runs=((first, 0, last - first),) if in_order else None).to_dict(), end)
        lines.append(line)
    if not in_order:
        lines.append(encode_line(_simulate_index(directory, rows).to_dict(), end)[0])
    (directory / JOURNAL_NAME).write_bytes(b"".join(lines))


def _simulate_index(directory: Path, rows: int) -> IndexEntry:
    """The index of samples 0, 3, 6, … whose rows are in another order."""
    layout, path = index_layout(rows, rows, 1), directory / INDEX_NAME
    places = tensor_places(layout)
    with path.open("wb") as file:
        file.write(header_bytes(layout))
        for start in range(0, rows, _BLOCK):
            place = np.arange(start, min(start + _BLOCK, rows))
            values = {
                "fences": place[-start % FENCE :: FENCE] * STEP,
                "samples": place * STEP,
                "rows": rows - 1 - place,
            }
            for name, array in values.items():
                file.seek(places[name])
                file.write(array.astype(layout[name][0]).data)
                places[name] += array.size * layout[name][0].itemsize
        file.seek(places["samples"])
        file.write(np.full(-rows % FENCE, (rows - 1) * STEP).data)
    return IndexEntry(INDEX_NAME, 1, file_bytes(layout), sha256(path))


def resident_bytes() -> int:
    """Of this process now; pages of files that it has read are counted as well."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def open_alone(directory: Path, warm: Path) -> dict[str, float]:
    """Open a cache and look batches up; run in a process that has opened a small cache before."""
    open_cache(warm, check=False).locate([0], [0])
    before, start = resident_bytes(), time.perf_counter()
    cache = open_cache(directory, check=False)
    seconds, megabytes = time.perf_counter() - start, (resident_bytes() - before) / 1e6
    scale = STEP if (directory / INDEX_NAME).exists() else 1
    batches = np.random.default_rng(0).integers(0, len(cache), (500, BATCH)) * scale
    views = np.zeros(BATCH, np.int64)
    cold = elapsed(lambda: [cache.locate(batch, views) for batch in batches]) / len(batches) * 1000
    warm_times = [elapsed(lambda: [cache.locate(batch, views) for batch in batches]) for _ in range(7)]
    found = statistics.median(warm_times) / len(batches) * 1000
    return {"seconds": seconds, "megabytes": megabytes, "milliseconds": found, "first": cold}


def elapsed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure_opening(rows: int, *, in_order: bool) -> dict[str, float]:
    """Seconds, megabytes and milliseconds of a simulated cache, in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        directory, warm = Path(place) / "cache", Path(place) / "warm"
        for path, count in ((directory, rows), (warm, 1000)):
            path.mkdir()
            simulate(path, count, in_order=in_order)
        command = [sys.executable, "-m", "benchmarks.cache_scale", str(directory), str(warm)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        measured: dict[str, float] = json.loads(done.stdout)
        return measured


def compare_indexes(rows: int) -> dict[str, dict[str, float]]:
    """Memory and time of the indexes of today over those of version 0.1, for ids in order and in none."""
    generator, views = np.random.default_rng(0), np.zeros(rows, np.int64)
    batches, no_views = generator.integers(0, rows, (200, BATCH)), np.zeros(BATCH, np.int64)
    found = {}
    with tempfile.TemporaryDirectory() as place:
        shuffled = generator.permutation(rows)
        entry = write_index(Path(place), [(shuffled, views)], rows)
        for name, ids, make in (
            ("in order", np.arange(rows), lambda: RunIndex([Run(0, 0, rows)], 1)),
            ("in no order", shuffled, lambda: SortedIndex(Path(place), entry, rows, rows)),
        ):
            indexes, held = [], []
            for build in (make, lambda ids=ids: TableOfRows(ids, views)):
                tracemalloc.start()
                indexes.append(build())
                held.append(tracemalloc.get_traced_memory()[0])
                tracemalloc.stop()
            new, old = indexes
            assert np.array_equal(new.find(batches[0], no_views), old.find(batches[0], no_views))
            found[name] = {
                "memory": held[0] / held[1],
                "opening": elapsed(make) / elapsed(lambda ids=ids: TableOfRows(ids, views)),
                "look-up": paired_ratio(
                    lambda new=new: [new.find(batch, no_views) for batch in batches],
                    lambda old=old: [old.find(batch, no_views) for batch in batches],
                ),
            }
    return found


def rows(count: int = ROWS, compared: int = COMPARED_ROWS) -> list[tuple[str, float, float]]:
    """(what, measured, most) for each promise."""
    parts = []
    for in_order, name in ((True, "in order"), (False, "in no order")):
        found = measure_opening(count, in_order=in_order)
        where = f"{count:,} rows, ids {name}"
        parts += [
            (f"{where}: opening, seconds", found["seconds"], MOST_SECONDS),
            (f"{where}: memory after opening, MB", found["megabytes"], MOST_MEGABYTES),
            (f"{where}: looking up 64, milliseconds", found["milliseconds"], MOST_LOOK_UP_MS),
        ]
    for name, ratios in compare_indexes(compared).items():
        for what in ("memory", "opening"):
            parts.append((f"{compared:,} rows, ids {name}: {what} over version 0.1, ratio", ratios[what], MOST_RATIO))
    return parts


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(open_alone(Path(sys.argv[1]), Path(sys.argv[2]))))
        return
    print("| what | measured | at most |\n|---|---|---|")
    for what, measured, most in rows():
        print(f"| {what} | {measured:.6f} | {most:.3f} |")
    for name, ratios in compare_indexes(COMPARED_ROWS).items():
        print(f"looking up 64 of {COMPARED_ROWS:,} rows, ids {name}, over version 0.1: {ratios['look-up']:.2f}")


if __name__ == "__main__":
    main()
