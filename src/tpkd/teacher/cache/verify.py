"""Look at a cache: what it holds, whether its bytes are those written, whether the model still says the same."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tpkd.errors import InputError
from tpkd.geometry.top_k import EMPTY, TopK
from tpkd.record import Record, added
from tpkd.teacher.cache.build import Forward
from tpkd.teacher.cache.contents import Contents, damaged_index, damaged_shards, read_contents
from tpkd.teacher.cache.manifest import Manifest, binds_labels
from tpkd.teacher.cache.read import TeacherCache, open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows, hash_keys, hash_labels
from tpkd.teacher.cache.shard_set import ShardSet
from tpkd.teacher.cache.shards import full_row_bytes
from tpkd.teacher.cache.truncation import keep, log_probs_of

TOLERANCE = {
    "float16": 1e-2,  # one rounding to 10 bits of a logit up to 20
    "float32": 1e-4,  # another batch size, thread count or machine changes the last bits of a matrix product
}
"""How far a recomputed value may be from the stored one, relative where it is above one."""


@dataclass(frozen=True)
class CacheInfo(Record):
    """What a manifest says, in plain numbers."""

    directory: str
    fingerprint: str
    complete: bool
    rows: int
    rows_written: int
    samples: int
    views: int
    num_classes: int
    dtype: str
    tensors: dict[str, int]
    shards: int
    shard_rows: int
    bytes: int
    """Of the written shards."""
    recipe: CacheRecipe
    full_bytes: int | None = added(None)
    """What the written rows of a truncated cache would take with all logits in float16; None where it has them all."""
    index_bytes: int = added(0)
    """Of the file by which rows are found; 0 where they are found by arithmetic."""
    part: str | None = added(None)
    """Which part of a cache this is; rows are then those of the part."""
    model_source: str | None = added(None)
    """What the network was built from, or which files were imported; None where that is not known."""


@dataclass(frozen=True)
class VerifyReport(Record):
    """What a verification looked at and every problem it found."""

    directory: str
    rows_written: int
    shards: int
    problems: tuple[str, ...]
    rows_recomputed: int
    max_difference: float | None
    """Largest difference between a stored and a recomputed value; None where there is no such number."""

    @property
    def passes(self) -> bool:
        """Whether there is no problem."""
        return not self.problems


def cache_info(directory: str | Path) -> CacheInfo:
    """What a cache holds, from its manifest alone, finished or not.

    Example:
        >>> cache_info("/no/such/cache")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: /no/such/cache: expected a teacher cache, found no manifest.json
    """
    contents = read_contents(Path(directory))
    manifest = contents.manifest
    recipe = manifest.recipe
    return CacheInfo(
        directory=str(directory),
        fingerprint=manifest.fingerprint,
        complete=contents.complete,
        rows=len(manifest.row_numbers),
        rows_written=contents.rows_written,
        samples=manifest.samples,
        views=manifest.views,
        num_classes=recipe.num_classes,
        dtype=recipe.dtype,
        tensors=recipe.tensors,
        shards=len(contents.shards),
        shard_rows=manifest.shard_rows,
        bytes=contents.bytes,
        recipe=recipe,
        full_bytes=None if recipe.top_k is None else contents.rows_written * full_row_bytes(recipe),
        index_bytes=0 if contents.index is None else contents.index.bytes,
        part=None if manifest.part is None else str(manifest.part),
        model_source=manifest.model_source,
    )


def verify_cache(
    directory: str | Path, *, forward: Forward | None = None, rows: CacheRows | None = None, sample: int = 32
) -> VerifyReport:
    """Hash every shard and, with the model at hand, compute some rows again.

    Args:
        directory: the cache.
        forward: the model that `build_cache` got; rows go through it one at a time.
        rows: the rows that `build_cache` got; given together with `forward`.
        sample: how many rows to compute again, spread at random (always the same ones) over the cache.

    Returns:
        A report; damage, missing rows and differing values are its problems, not exceptions.

    Raises:
        InputError: there is no cache, or its manifest cannot be read.

    Example:
        >>> import tempfile
        >>> from tpkd.teacher.cache import build_cache
        >>> rows = CacheRows.of_views(np.array([7, 8]), 1, lambda samples, views: torch.tensor(samples))
        >>> teacher = lambda x: {"logits": x[:, None] + torch.tensor([0.0, 0.5, 1.0])}
        >>> directory = tempfile.mkdtemp()
        >>> build_cache(directory, rows, teacher, CacheRecipe("weights", "data", {}, None, 3))
        >>> verify_cache(directory, forward=teacher, rows=rows).passes
        True
    """
    if (forward is None) != (rows is None):
        raise ValueError("forward, rows: expected both or neither")
    directory = Path(directory)
    contents = read_contents(directory)
    problems = [*damaged_shards(contents).values()]
    problems += [problem for problem in [damaged_index(contents)] if problem is not None]
    if not contents.complete:
        problems.append(f"{directory}: {contents.missing}")
    if rows is not None:
        problems.extend(f"{directory}: {problem}" for problem in _other_rows(contents.manifest, rows))
    recomputed, largest = 0, None
    if not problems:
        try:
            cache = _open_checked(contents)
        except InputError as error:
            problems.append(str(error))
        else:
            if forward is not None and rows is not None:
                numbers = contents.manifest.row_numbers
                chosen = numbers.start + np.random.default_rng(0).permutation(len(numbers))[:sample]
                found, largest = _recompute(cache, forward, rows, np.sort(chosen))
                recomputed = len(chosen)
                problems.extend(found)
    return VerifyReport(
        str(directory), contents.rows_written, len(contents.shards), tuple(problems), recomputed, largest
    )


def _open_checked(contents: Contents) -> TeacherCache:
    """Open a cache whose bytes were hashed, all problems of them known, and look at what it holds."""
    ShardSet(contents).check_keys()
    cache = open_cache(contents.directory, check=False, partial=contents.manifest.part is not None)
    cache.check_rows()
    cache.check_index()
    return cache


def _other_rows(manifest: Manifest, rows: CacheRows) -> Iterator[str]:
    if hash_keys(rows.sample_ids, rows.view_ids) != manifest.keys_sha256:
        yield "the rows at hand have other sample ids, view ids or another order"
    elif binds_labels(manifest.recipe) and hash_labels(rows, manifest.recipe.num_classes) != manifest.labels_sha256:
        yield f"the rows at hand have other {'labels' if rows.tokens is None else 'tokens'}"


def _recompute(
    cache: TeacherCache, forward: Forward, rows: CacheRows, chosen: np.ndarray
) -> tuple[list[str], float | None]:
    problems, differences = [], [0.0]
    tolerance = TOLERANCE[cache.recipe.dtype]
    for row in chosen.tolist():
        sample, view = rows.sample_ids[row : row + 1], rows.view_ids[row : row + 1]
        with torch.inference_mode():
            outputs = forward(rows.inputs(row, row + 1))
        for name, stored, again in _pairs(cache, rows, row, outputs):
            difference = torch.where(stored == again, 0.0, (again - stored).abs())  # both may be -inf
            worst = difference.max().item()
            differences.append(worst)
            size = torch.where(stored.isfinite(), stored.abs().clamp(min=1), 1.0)
            if not (difference <= tolerance * size).all():  # NaN compares false
                problems.append(
                    f"{cache.directory}: sample {sample[0]}, view {view[0]}: {name}: expected what the model says now, "
                    f"found values that differ by up to {worst:.3g}"
                )
    largest = float(np.max(differences))  # NaN stays NaN
    return problems, largest if math.isfinite(largest) else None


def _pairs(
    cache: TeacherCache, rows: CacheRows, row: int, outputs: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name, stored and recomputed values of everything that a row keeps, in float64 on the CPU."""
    key = rows.sample_ids[row : row + 1], rows.view_ids[row : row + 1]
    for name in cache.recipe.outputs:
        if name != "logits" or cache.top_k is None:
            yield name, cache.read_tensor(name, *key).double(), outputs[name].double().cpu()
            continue
        stored = cache.read(*key)
        assert isinstance(stored, TopK)
        assert rows.labels is not None
        stored, labels = stored.rows(), torch.from_numpy(rows.labels[row : row + 1]).reshape(-1)
        log_probs = log_probs_of(outputs[name].reshape(len(labels), -1)).double().cpu()
        # Compared on the classes that were kept: of two nearly equal ones another batch size may keep the other.
        again = _keep_again(log_probs, stored, labels)
        for column in ("log_probs", "label_log_probs", "rest_log_probs"):
            yield column, getattr(stored, column).double(), getattr(again, column)
        left_out = log_probs.scatter(-1, _in_every_place(stored), -torch.inf).amax(-1)
        least = again.log_probs.masked_fill(stored.indices == EMPTY, torch.inf).amin(-1)
        yield "indices", torch.minimum(left_out, least), left_out  # none that was left out is above one that was kept


def _keep_again(log_probs: Tensor, stored: TopK, labels: Tensor) -> TopK:
    """What is now said of the places that were kept; an empty place is empty again."""
    again = keep(log_probs, _in_every_place(stored), labels)
    return replace(again, log_probs=again.log_probs.masked_fill(stored.indices == EMPTY, -torch.inf))


def _in_every_place(stored: TopK) -> Tensor:
    """The kept classes; the largest stands for an empty place, so that no other is taken for kept."""
    return torch.where(stored.indices == EMPTY, stored.indices[:, :1], stored.indices)
