"""Float32 matrix products by oneDNN instead of MKL: put this folder on PYTHONPATH, for example before `tpkd compare`.

On AMD processors MKL does without AVX-512, and oneDNN, which PyTorch brings as well, is faster. Python loads this file
by its name in every process, so the workers of a grid have it too. Both compute in float32; sums round in another
order. Small products stay with MKL, where a call costs more than it saves.
"""

import torch
from torch import Tensor

LEAST = 1 << 18
"""Multiplications of a product that are worth a detour through Python."""

_library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
_fallbacks = {name: torch.library.get_kernel(f"aten::{name}", "CPU") for name in ("mm", "addmm")}


def _large(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype == torch.float32 and one.numel() * other.shape[1] >= LEAST


def _product(one: Tensor, other: Tensor, bias: Tensor | None = None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(one, other.t(), bias, "none", [], "")
    return found


def _mm(keys: torch._C.DispatchKeySet, one: Tensor, other: Tensor) -> Tensor:
    return _product(one, other) if _large(one, other) else _fallbacks["mm"].call_boxed(keys, one, other)


def _addmm(
    keys: torch._C.DispatchKeySet, bias: Tensor, one: Tensor, other: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    if _large(one, other) and bias.dim() == 1 and bias.shape[0] == other.shape[1] and beta == alpha == 1:
        return _product(one, other, bias)
    found: Tensor = _fallbacks["addmm"].call_boxed(keys, bias, one, other, beta=beta, alpha=alpha)
    return found


_library.impl("mm", _mm, "CPU", with_keyset=True)  # type: ignore[no-untyped-call]
_library.impl("addmm", _addmm, "CPU", with_keyset=True)  # type: ignore[no-untyped-call]
