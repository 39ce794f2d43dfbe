"""Names of weights in another code base: translated by a map, and compared with ours where they do not fit."""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping

from tpkd.errors import InputError, did_you_mean, some

WeightMap = Mapping[str, str | None]
"""Their name, or its first parts -> ours; None leaves the tensors out."""

Shapes = Mapping[str, tuple[int, ...]]


def rename(name: str, weight_map: WeightMap) -> str | None:
    """The name in our network of a tensor of another code base; None if the map leaves it out.

    A key is a whole name or its first parts, with or without a dot behind it; of several that match, the longest
    counts. A name that none matches stays as it is.

    Example:
        >>> own = {"backbone.": "", "classifier": "fc", "projector": None}
        >>> [rename(name, own) for name in ("backbone.conv1.weight", "classifier.bias", "projector.0.bias", "bn1.bias")]
        ['conv1.weight', 'fc.bias', None, 'bn1.bias']
    """
    matching = [key for key in weight_map if _matches(key, name)]
    if not matching:
        return name
    key = max(matching, key=lambda key: len(key.rstrip(".")))
    target = weight_map[key]
    if target is None:
        return None
    rest = name[len(key.rstrip(".")) :]
    return (target.rstrip(".") + ("" if not rest or rest.startswith(".") else ".") + rest).lstrip(".")


def _matches(key: str, name: str) -> bool:
    start = key.rstrip(".")
    return not start or name == start or name.startswith(f"{start}.")


def rename_all(names: Iterable[str], weight_map: WeightMap) -> dict[str, str]:
    """Our name -> theirs, in their order.

    Raises:
        InputError: two tensors would have the same name.

    Example:
        >>> rename_all(["head.weight", "head.bias"], {"head": "fc"})
        {'fc.weight': 'head.weight', 'fc.bias': 'head.bias'}
    """
    found: dict[str, str] = {}
    for theirs in names:
        ours = rename(theirs, weight_map)
        if ours is None:
            continue
        if ours in found:
            raise InputError(f"weight_map: expected every name once, found {found[ours]} and {theirs} both as {ours!r}")
        found[ours] = theirs
    return found


def name_mismatch(
    wanted: Shapes, found: Shapes, weight_map: WeightMap, theirs: Mapping[str, str], left_out: Iterable[str] = ()
) -> str | None:
    """Why the names of a file are not those of a network, and which map would come closest; None if they are.

    Args:
        wanted: name -> shape, of the network.
        found: name -> shape, of the file after renaming.
        weight_map: the map that was used.
        theirs: the names of `found` -> those before renaming.
        left_out: names before renaming of tensors that are not in `found`.

    Example:
        >>> name_mismatch({"fc.bias": (10,)}, {"head.bias": (10,)}, {}, {"head.bias": "head.bias"})
        'missing fc.bias; unexpected head.bias; closest by shape and name: weight_map: {head: fc}'
    """
    missing, unexpected = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if not missing and not unexpected:
        return None
    parts = [f"missing {some(missing)}"] * bool(missing) + [f"unexpected {some(unexpected)}"] * bool(unexpected)
    unused = _unused(weight_map, [*theirs.values(), *left_out])
    entries = closest_map(
        {name: shape for name, shape in wanted.items() if name not in found},
        {theirs[name]: shape for name, shape in found.items() if name not in wanted},
    )
    return "; ".join([*parts, *unused, *_proposal(entries)])


def _unused(weight_map: WeightMap, names: Collection[str]) -> Iterator[str]:
    starts = {".".join(parts[:count]) for name in names for parts in [name.split(".")] for count in range(1, 9)}
    for key in weight_map:
        if not any(_matches(key, name) for name in names):
            yield f"weight_map: {key!r} matches no name{did_you_mean(key.rstrip('.'), starts).replace('; ', ', ')}"


def _proposal(entries: Mapping[str, str]) -> Iterator[str]:
    if entries:
        shown = some([f"{_quoted(their)}: {_quoted(our)}" for their, our in entries.items()], shown=4)
        yield f"closest by shape and name: weight_map: {{{shown}}}"


def _quoted(name: str) -> str:
    """A name as YAML takes it for text."""
    return name if name[:1].isalpha() else repr(name)


def closest_map(missing: Shapes, unexpected: Shapes) -> dict[str, str]:
    """The shortest entries of a map from unexpected names to missing ones of the same shape, paired by likeness.

    Example:
        >>> missing = {"layers.0.weight": (8, 4), "layers.1.weight": (8, 8)}
        >>> closest_map(missing, {"body.0.weight": (8, 4), "body.2.weight": (8, 8)})
        {'body': 'layers', 'body.2': 'layers.1'}
    """
    left = dict(unexpected)
    entries: dict[str, str] = {}
    for ours, shape in missing.items():
        candidates = [theirs for theirs, found in left.items() if found == shape]
        if not candidates:
            continue
        theirs = max(candidates, key=lambda name: difflib.SequenceMatcher(None, name, ours, autojunk=False).ratio())
        del left[theirs]
        if rename(theirs, entries) != ours:
            their_start, our_start = _without_common_end(theirs, ours)
            known = their_start in entries or not their_start
            entries[theirs if known else their_start] = ours if known else our_start
    return entries


def _without_common_end(theirs: str, ours: str) -> tuple[str, str]:
    their_parts, our_parts = theirs.split("."), ours.split(".")
    while len(their_parts) > 1 and our_parts and their_parts[-1] == our_parts[-1]:
        their_parts.pop()
        our_parts.pop()
    return ".".join(their_parts), ".".join(our_parts)
