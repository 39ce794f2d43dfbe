"""The Triton programs compiled for GPUs that need not be there: `make test-triton`, without the interpreter."""

import importlib.util

import pytest
from benchmarks.gpu_counts import TARGETS, compiled, programs

from tpkd.objectives.kernels import gpu

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or gpu.is_interpreted(),
    reason="needs Triton's compiler: make test-triton",
)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target[1]))
@pytest.mark.parametrize("sizes", gpu.SIZES, ids=str)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_no_program_spills(target, dtype, sizes):
    """At its widest block, where registers are scarcest, and in every other program, at all sizes to choose from."""
    for name, constants in programs(sizes):
        if name == "whole_rows" and constants["BLOCK"] not in (2**10, gpu.LONGEST_WHOLE_ROW):
            continue
        found = compiled(name, dtype, target, sizes, **constants)
        assert found.spilled == 0, (name, constants)
