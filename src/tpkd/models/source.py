"""What decides a network, summed up without building it: its name, its options and the bytes of its files."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpkd.files import sha256

_FOLDER_SUFFIXES = (".json", ".safetensors", ".bin", ".pt", ".pth")


def model_source(
    name: str,
    *,
    num_classes: int,
    options: Mapping[str, Any] | None = None,
    weights: str | Path | None = None,
    head: str = "own",
    seed: int = 0,
) -> str | None:
    """The SHA-256 of everything that `build_model` makes a network from; its arguments are the same.

    Equal sources are equal networks, under the same versions of the libraries. Different sources may still be equal
    networks, for example where weights were saved again. None where no local files say what the network is: weights
    that a library fetches.

    Raises:
        InputError: a file cannot be read.

    Example:
        >>> model_source("builtin:resnet20", num_classes=100) == model_source("builtin:resnet20", num_classes=10)
        False
        >>> model_source("hf:somebody/model", num_classes=10) is None
        True
    """
    kind, _, rest = name.partition(":")
    files: dict[str, str] = {}
    if kind == "hf":
        folder = Path(rest)
        if not folder.is_dir():
            return None
        # The folder may stand elsewhere on another machine; what is in it decides.
        name = kind
        files = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.suffix in _FOLDER_SUFFIXES}
    elif kind == "timm" and (":" in rest or "/" in rest or (weights is None and (options or {}).get("pretrained"))):
        return None
    parts = {
        "name": name,
        "num_classes": num_classes,
        "options": dict(options or {}),
        "head": head,
        "seed": seed,
        "files": files,
        "weights": None if weights is None else sha256(weights),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
