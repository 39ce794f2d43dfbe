"""Examples run where their libraries are: timm and Triton are in environments of their own, see the Makefile."""

import importlib.util

collect_ignore_glob = [
    files
    for library, files in {
        "timm": "tpkd/integrations/timm*.py",
        "triton": "tpkd/objectives/kernels/gpu_rows.py",
    }.items()
    if importlib.util.find_spec(library) is None
]
