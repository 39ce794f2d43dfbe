"""Support for the tests that need timm, which run in an environment of their own: `make test-timm`.

The folder is not called timm: `tests` is on the import path, where it would stand in for the library.
"""

import contextlib
import importlib.util
from pathlib import Path

import torch

# In the environment of `make test` there is no timm, on purpose; there these files do not count as tests.
collect_ignore_glob = [] if importlib.util.find_spec("timm") else ["test_*.py"]


def _define_missing_operators() -> torch.library.Library | None:
    """Declare the two operators whose fake versions torchvision registers when it is imported.

    timm imports torchvision for its image transforms. A torchvision whose compiled part was built for another torch (a
    CUDA build beside a CPU torch, say) does not load that part, and then its import fails on these names although
    nobody here calls them. Tests alone do this: a user's torch and torchvision come as a pair.
    """
    torchvision = importlib.util.find_spec("torchvision")
    if torchvision is None or torchvision.origin is None:
        return None
    for compiled in Path(torchvision.origin).parent.glob("_C.*"):
        with contextlib.suppress(OSError):
            torch.ops.load_library(compiled)
    if hasattr(torch.ops.torchvision, "nms"):
        return None
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


_LIBRARY = _define_missing_operators()  # the declarations live as long as this object
