"""From what a model said to what a shard keeps; every value is looked at before it is stored."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from tpkd.errors import InputError
from tpkd.geometry.top_k import EMPTY
from tpkd.teacher.cache.columns import TOKENS, TOP_K_COLUMNS
from tpkd.teacher.cache.keys import Keys
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.truncation import has_rest, truncate_positions


def store_rows(
    arrays: dict[str, np.ndarray],
    place: slice,
    rows: CacheRows,
    block: slice,
    outputs: Mapping[str, Tensor],
    recipe: CacheRecipe,
) -> None:
    """Put a block of rows into the arrays of a shard.

    Args:
        arrays: the tensors of the shard, by the names of its layout.
        place: where in the shard the block belongs.
        rows: all rows of the cache.
        block: which of them these are.
        outputs: `{"logits": (b, K), name: (b, width), …}`, the names those of the recipe, with positions behind b where
            it has any; of a teacher that was truncated before, the columns of the recipe without the tokens.
        recipe: what a row keeps of them.

    Raises:
        InputError: an output is missing or has another shape, or a value is not finite or beyond the precision in which
            it is kept; the row is named by (sample id, view id).
    """
    keys = rows.sample_ids[block], rows.view_ids[block]
    columns = dict(outputs)
    is_truncated = recipe.top_k is not None and outputs.keys() == recipe.columns.keys() - {TOKENS}
    if not is_truncated:
        _check_outputs(outputs, len(keys[0]), recipe)
    if recipe.top_k is not None and not is_truncated:
        assert rows.labels is not None, "the manifest of such a cache hashes them"
        columns |= _truncated(columns.pop("logits"), rows.labels[block], recipe, keys)
    if rows.tokens is not None:
        arrays[TOKENS][place] = rows.tokens[block]
    for name, values in columns.items():
        dtype = arrays[name].dtype.name
        if name == "indices":
            values = values.masked_fill(values == EMPTY, recipe.num_classes)
        stored = values.to(getattr(torch, dtype))
        if name != "indices":
            may_be_none = name == "rest_log_probs" or (name == "log_probs" and recipe.top_p is not None)
            nothing = values == -torch.inf if may_be_none else False
            _refuse_where(~(stored.isfinite() | nothing), name, values, keys, dtype)
        arrays[name][place] = stored.cpu().numpy()
    arrays["sample_ids"][place], arrays["view_ids"][place] = keys
    arrays["written"][place] = True


def _check_outputs(outputs: Mapping[str, Tensor], rows: int, recipe: CacheRecipe) -> None:
    if outputs.keys() != recipe.outputs.keys():
        raise InputError(f"forward: expected outputs {', '.join(recipe.outputs)}, found {', '.join(outputs)}")
    for name, width in recipe.outputs.items():
        values, shape = outputs[name], (rows, *([] if recipe.positions is None else [recipe.positions]), width)
        if values.shape != shape or not values.is_floating_point():
            found = f"{values.dtype} of shape {tuple(values.shape)}"
            raise InputError(f"forward: {name}: expected floating-point values of shape {shape}, found {found}")


def _truncated(logits: Tensor, labels: np.ndarray, recipe: CacheRecipe, keys: tuple[Keys, Keys]) -> dict[str, Tensor]:
    """The columns of a truncated row, before they are rounded."""
    assert recipe.top_k is not None
    y = torch.from_numpy(labels).to(logits.device)
    if not torch.stack(logits.aminmax()).isfinite().all():
        _refuse_where(~logits.isfinite(), "logits", logits, keys)
    kept = truncate_positions(logits, y, recipe.top_k, recipe.top_p)
    assert kept.rest_log_probs is not None
    # Classes are left out and yet weigh nothing: their logits are further below than the precision reaches.
    lost = has_rest(kept, y, logits.shape[-1]) & ~kept.rest_log_probs.isfinite()
    _refuse_where(lost, "rest_log_probs", kept.rest_log_probs, keys)
    return {name: getattr(kept, name) for name in TOP_K_COLUMNS}


def _refuse_where(wrong: Tensor, name: str, values: Tensor, keys: tuple[Keys, Keys], dtype: str | None = None) -> None:
    if not wrong.any():
        return
    row, *column = wrong.nonzero()[0].tolist()
    value = values[row, *column].item()
    expected = "a finite value"
    if np.isfinite(value):
        expected = f"a value that {dtype} holds" + ("; set dtype to float32" if dtype == "float16" else "")
    where = name + "".join(f"[{index}]" for index in column)
    raise InputError(f"sample {keys[0][row]}, view {keys[1][row]}: {where}: expected {expected}, found {value:.6g}")
