"""The spec of a network (name, options, files) and its hash, without building the network."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpkd.files import sha256
from tpkd.models.efficientnet import LITE_SIZES, published_weights

_FOLDER_SUFFIXES = (".json", ".safetensors", ".bin", ".pt", ".pth")


@dataclass(frozen=True)
class ModelSpec:
    """Everything that `build_model` builds a network from.

    Example:
        >>> ModelSpec("builtin:mlp", num_classes=3, options={"hidden": [8]}).head
        'own'
    """

    name: str
    """The kind of network and its name: `builtin:mlp`, `timm:NAME`, `hf:PATH_OR_ID`."""
    num_classes: int
    options: Mapping[str, Any] = field(default_factory=dict)
    """See `tpkd.models.options` for each kind."""
    weights: str | Path | None = None
    """A local `.safetensors`, `.pth`, `.pt` or `.bin` file with the names of the network."""
    head: str = "own"
    """`"own"` keeps the classifier of the network or its weights; `"random"` replaces it by the shared random head, so
    that weights for other classes can serve as a backbone."""
    seed: int = 0
    """Draws every weight that does not come from a file."""
    weight_map: Mapping[str, str | None] = field(default_factory=dict)
    """Names in the file of weights -> names of the network, as `tpkd.models.renaming.rename` takes them."""


def model_source(spec: ModelSpec) -> str | None:
    """The SHA-256 of everything that `build_model` makes a network from.

    With the same library versions, equal sources give equal networks. Different sources may also give equal networks,
    for example after weights were saved again. None if no local files define the network, because a library downloads
    its weights.

    Raises:
        InputError: a file cannot be read.

    Example:
        >>> model_source(ModelSpec("builtin:resnet20", 100)) == model_source(ModelSpec("builtin:resnet20", 10))
        False
        >>> model_source(ModelSpec("hf:somebody/model", 10)) is None
        True
    """
    kind, _, rest = spec.name.partition(":")
    folder = Path(rest)
    if kind == "hf" and not folder.is_dir():
        return None
    fetched = spec.weights is None and spec.options.get("pretrained")
    if kind == "timm" and (":" in rest or "/" in rest or fetched):
        return None
    published = LITE_SIZES.get(spec.name) if fetched else None
    # The folder may be elsewhere on another machine; what is in it decides.
    files = sorted(folder.iterdir()) if kind == "hf" else []
    parts = {
        "name": "hf" if kind == "hf" else spec.name,
        "num_classes": spec.num_classes,
        "options": dict(spec.options),
        "head": spec.head,
        "seed": spec.seed,
        "files": {path.name: sha256(path) for path in files if path.suffix in _FOLDER_SUFFIXES},
        "weights": None if spec.weights is None else sha256(spec.weights),
    }
    if published is not None:
        parts["weights"] = sha256(published_weights(published))
    if spec.weight_map:  # absent otherwise: caches know the hash from before there were maps
        parts["weight_map"] = dict(spec.weight_map)
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
