"""What a cache keeps of each row and how large that is, in words."""

from dataclasses import replace

from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.shards import full_row_bytes, row_bytes


def describe_kept(recipe: CacheRecipe) -> str:
    """What a row keeps of the teacher's answer.

    Example:
        >>> describe_kept(CacheRecipe("m", "d", {}, None, 100))
        '100 classes, float16'
        >>> describe_kept(CacheRecipe("m", "d", {}, None, 50_000, top_k=64))
        'top 64 of 50000 classes and the label, float16; total of the rest, float32'
        >>> describe_kept(CacheRecipe("m", "d", {}, None, 50_000, top_k=64, positions=255, top_p=0.95))
        ... # doctest: +NORMALIZE_WHITESPACE
        'for each of 255 tokens: top 64 of 50000 classes up to a share of 0.95 and the label, float16; total of the
        rest, float32'
    """
    if recipe.positions is not None:
        return f"for each of {recipe.positions} tokens: {describe_kept(replace(recipe, positions=None))}"
    if recipe.top_k is None:
        return f"{recipe.num_classes} classes, {recipe.dtype}"
    share = "" if recipe.top_p is None else f" up to a share of {recipe.top_p:g}"
    kept = f"top {recipe.top_k} of {recipe.num_classes} classes{share} and the label, {recipe.dtype}"
    return f"{kept}; total of the rest, {recipe.columns['rest_log_probs'].dtype}"


def compare_sizes(found: int, full: int) -> str:
    """The size of a truncated cache beside that of its rows with all logits in float16.

    Example:
        >>> compare_sizes(2_810_000, 1_000_170_000)
        '2.8 MB, 0.281 % of the 1.0 GB of all logits in float16'
    """
    share = 100 * found / full if full else 0.0
    return f"{sized(found)}, {share:.3g} % of the {sized(full)} of all logits in float16"


def sized(count: int) -> str:
    """A number of bytes in a unit that suits it.

    Example:
        >>> sized(900), sized(2_810_000), sized(21_700_000_000), sized(3_038_890_000_000_000)
        ('0.9 kB', '2.8 MB', '21.7 GB', '3,038.9 TB')
    """
    units = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}
    name = next((name for name, size in units.items() if count >= size), "kB")
    return f"{count / units[name]:,.1f} {name}"


def kept_sentence(recipe: CacheRecipe, rows: int) -> str:
    """What a truncated cache of some rows will keep and take.

    Example:
        >>> kept_sentence(CacheRecipe("m", "d", {}, None, 50_000, top_k=64), 10_000)
        ... # doctest: +NORMALIZE_WHITESPACE
        'Each row keeps: top 64 of 50000 classes and the label, float16; total of the rest, float32. 2.8 MB, 0.279 % of
        the 1.0 GB of all logits in float16.'
    """
    sizes = compare_sizes(rows * row_bytes(recipe), rows * full_row_bytes(recipe))
    return f"Each row keeps: {describe_kept(recipe)}. {sizes}."
