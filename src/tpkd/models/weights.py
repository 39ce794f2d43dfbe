"""Weights on disk and their identity: safetensors in, refused by the names that do not fit; a hash of what a net is."""

import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from tpkd.files import InputError, reading

WRAPPED = "network"
"""Where a wrapper keeps the network of another library, whose own names its published weights carry."""


def weights_fingerprint(module: nn.Module) -> str:
    """The SHA-256 of every parameter and buffer: name, dtype, shape and bytes, in order of names.

    Device, order of registration and memory layout do not matter; a single flipped bit does.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> before = weights_fingerprint(layer)
        >>> nn.init.zeros_(layer.weight).shape, weights_fingerprint(layer) == before
        (torch.Size([1, 2]), False)
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def load_weights(module: nn.Module, path: str | Path, *, skip: Collection[str] = ()) -> None:
    """Load a safetensors file into a module, every tensor or none.

    The file carries the names of the module's state dict or, for a wrapper, those of the network it wraps. Numbers are
    converted to the module's dtype.

    Args:
        module: what to load into.
        path: a `.safetensors` file.
        skip: names of the module's state dict that the file need not have and that keep their values if it does.

    Raises:
        InputError: the file is missing, damaged or no safetensors; names are missing or unexpected; a shape differs.

    Example:
        >>> import tempfile
        >>> from safetensors.torch import save_file
        >>> file = Path(tempfile.mkdtemp()) / "layer.safetensors"
        >>> save_file({"weight": torch.ones(1, 2), "bias": torch.ones(1)}, file)
        >>> layer = nn.Linear(2, 1)
        >>> load_weights(layer, file)
        >>> layer(torch.ones(2))
        tensor([3.], grad_fn=<ViewBackward0>)
    """
    from safetensors import safe_open

    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(f"{path}: expected a .safetensors file, found the suffix {path.suffix!r}")
    targets = module.state_dict()
    with reading(path), safe_open(path, framework="pt") as archive:
        names = set(archive.keys())
        prefix = f"{WRAPPED}." if hasattr(module, WRAPPED) and names.isdisjoint(targets) else ""
        found = {prefix + name: archive.get_slice(name) for name in names}
        wanted = {name: target for name, target in targets.items() if name not in skip}
        _check_names(path, wanted, found.keys() - set(skip))
        for name, target in wanted.items():
            _check_shape(path, name, target, found[name].get_shape())
        with torch.no_grad():
            for name, target in wanted.items():
                target.copy_(archive.get_tensor(name.removeprefix(prefix)))


def _check_names(path: Path, wanted: Collection[str], found: Collection[str]) -> None:
    missing, unexpected = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    if missing or unexpected:
        parts = [f"missing {_some(missing)}"] * bool(missing) + [f"unexpected {_some(unexpected)}"] * bool(unexpected)
        raise InputError(f"{path}: does not fit the network: {'; '.join(parts)}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _check_shape(path: Path, name: str, target: Tensor, shape: Iterable[int]) -> None:
    if tuple(shape) != tuple(target.shape):
        raise InputError(f"{path}: {name}: expected shape {tuple(target.shape)}, found {tuple(shape)}")
