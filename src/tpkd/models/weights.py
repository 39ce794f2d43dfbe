"""Load, check, save and hash the weights of a network."""

import hashlib
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from tpkd.class_names import to_metadata
from tpkd.errors import InputError
from tpkd.files import write_file
from tpkd.models.classifier import Classifier
from tpkd.models.renaming import WeightMap, name_mismatch, rename_all
from tpkd.models.state_files import open_state

_logger = logging.getLogger(__name__)

WRAPPED = "network"
"""Attribute of a wrapper that holds another library's network; published weights use that network's names."""

WRAPPERS = ("module.", "_orig_mod.")
"""Prefixes that data parallelism and `torch.compile` add to every name."""


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


def load_weights(
    module: nn.Module, path: str | Path, *, skip: Collection[str] = (), weight_map: WeightMap | None = None
) -> tuple[str, ...]:
    """Load a file of weights into a module, every tensor or none.

    The file uses the names of the module's state dict or, for a wrapper, those of the network it wraps; `module.`
    and `_orig_mod.` in front of all names are stripped. Numbers are converted to the module's dtype. An auxiliary head
    that the file does not have is dropped, because those weights work without it.

    Args:
        module: what to load into.
        path: a `.safetensors` file, or a `.pth`, `.pt` or `.bin` file of torch, from which only tensors are read.
        skip: names in the module's state dict that keep their values, whether or not the file has them.
        weight_map: names of another code base -> those of the network, as `tpkd.models.renaming.rename` takes them.

    Returns:
        The names that were loaded, as the module has them, in the order of the file.

    Raises:
        InputError: the file is missing or damaged, or holds more than weights; names are missing or unexpected, with
            the closest ones; a shape differs.

    Example:
        >>> import tempfile
        >>> from safetensors.torch import save_file
        >>> file = Path(tempfile.mkdtemp()) / "layer.safetensors"
        >>> save_file({"weight": torch.ones(1, 2), "bias": torch.ones(1)}, file)
        >>> layer = nn.Linear(2, 1)
        >>> sorted(load_weights(layer, file))
        ['bias', 'weight']
        >>> layer(torch.ones(2))
        tensor([3.], grad_fn=<ViewBackward0>)
    """
    targets = module.state_dict()
    with open_state(path) as state:
        wrapper = _wrapper(state.shapes, targets)
        bare = {name.removeprefix(wrapper): name for name in state.shapes}
        own = {key.removeprefix(wrapper): target for key, target in (weight_map or {}).items()}
        names = rename_all(bare, own)
        prefix = f"{WRAPPED}." if hasattr(module, WRAPPED) and targets.keys().isdisjoint(names) else ""
        found = {prefix + ours: bare[theirs] for ours, theirs in names.items()}
        absent = module.heads_without(found) if isinstance(module, Classifier) else {}
        wanted = {name: target for name, target in targets.items() if name not in {*skip, *absent}}
        shapes = {name: state.shapes[theirs] for name, theirs in found.items() if name not in skip}
        expected = {name: tuple(target.shape) for name, target in wanted.items()}
        theirs = {prefix + name: origin for name, origin in names.items()}
        if problem := name_mismatch(expected, shapes, own, theirs, bare.keys() - names.values()):
            raise InputError(f"{state.place}: does not fit the network: {problem}")
        _check_shapes(state.place, module, expected, shapes)
        if isinstance(module, Classifier):
            module.drop_heads(absent.values())
        with torch.no_grad():
            for name, target in wanted.items():
                target.copy_(state.tensor(found[name]))
    notes = [f"took the weights under {state.key!r}"] * (state.key is not None)
    notes += [f"names without {wrapper!r}"] * bool(wrapper)
    notes += [f"has no {head}, which is left out" for head in sorted(set(absent.values()))]
    if notes:
        _logger.info("%s: %s", path, "; ".join(notes))
    return tuple(shapes)


def _wrapper(names: Collection[str], targets: Collection[str]) -> str:
    """The prefix shared by all names that is not part of the network's own names."""
    found = ""
    while names and set(names).isdisjoint(targets):
        shared = next((each for each in WRAPPERS if all(name.startswith(each) for name in names)), None)
        if shared is None:
            break
        found, names = found + shared, {name.removeprefix(shared) for name in names}
    return found


def _check_shapes(
    place: str, module: nn.Module, expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> None:
    wrong = [name for name, shape in expected.items() if found[name] != shape]
    if not wrong:
        return
    first = wrong[0]
    more = f"; {len(wrong) - 1} more shapes differ" if len(wrong) > 1 else ""
    heads = module.head_names if isinstance(module, Classifier) else frozenset()
    if set(wrong) <= heads and found[first][:1] != expected[first][:1]:
        more = f": a head for {found[first][0]} classes, where the data have {expected[first][0]}{more}"
    raise InputError(f"{place}: {first}: expected shape {expected[first]}, found {found[first]}{more}")


def save_weights(
    module: nn.Module, path: Path, class_names: Sequence[str], *, dtype: torch.dtype | None = None
) -> None:
    """Publish the state dict of a module as a safetensors file, with the names of its classes.

    Args:
        module: whose weights.
        path: the file.
        class_names: in the order of the logits.
        dtype: of floating-point tensors in the file; default: each one's own.
    """
    from safetensors.torch import save

    def stored(tensor: Tensor) -> Tensor:
        plain = tensor.detach().cpu().contiguous()
        return plain.to(dtype, copy=True) if dtype is not None and plain.is_floating_point() else plain.clone()

    tensors = {name: stored(tensor) for name, tensor in module.state_dict().items()}
    write_file(path, save(tensors, metadata=to_metadata(class_names)))
