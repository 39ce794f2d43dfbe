"""Short names for files: their ends, as long as it takes to tell them apart."""

from collections.abc import Sequence
from pathlib import PurePath


def short_names(files: Sequence[str]) -> list[str]:
    """The name of each file, with as many folders before it as no other file ends with.

    Example:
        >>> short_names(["runs/ce/epoch-20.npy", "runs/kd/logits.npy", "runs/tpkd/logits.npy"])
        ['epoch-20.npy', 'kd/logits.npy', 'tpkd/logits.npy']
    """
    paths = [PurePath(file) for file in files]
    return [_short(path, {other.parts for other in paths if other != path}) for path in paths]


def _short(path: PurePath, others: set[tuple[str, ...]]) -> str:
    ends = (path.parts[-length:] for length in range(1, len(path.parts) + 1))
    own = (end for end in ends if not any(other[-len(end) :] == end for other in others))
    return str(PurePath(*next(own, path.parts)))


def without_suffixes(names: Sequence[str]) -> list[str]:
    """The names without their suffixes, unless only the suffixes tell them apart.

    Example:
        >>> without_suffixes(["kd/logits.npy", "tpkd/logits.npy"]), without_suffixes(["a.npy", "a.npz"])
        (['kd/logits', 'tpkd/logits'], ['a.npy', 'a.npz'])
    """
    stems = [str(PurePath(name).with_suffix("")) for name in names]
    return stems if len(set(stems)) == len(set(names)) else list(names)
