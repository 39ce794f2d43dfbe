"""The kernels under sanitizers, with whatever a caller may hand over; and as a processor without extensions runs it."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from faults.kernel_build import ROOT, build_kernels, build_sanitized_kernels, why_not_sanitized

HERE = Path(__file__).parent
FULL = os.environ.get("TPKD_FAULTS") == "full"
CASES = 5000 if FULL else 150
SEED = int(os.environ.get("TPKD_FUZZ_SEED", random.SystemRandom().randrange(10**9) if FULL else 0))

OBJECTIVES = """
import sys
import pytest
from kernel_build import use_kernels
use_kernels(sys.argv[1])
sys.exit(pytest.main(["-x", "tests/objectives"]))
"""


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(HERE), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **environment, "PYTHONPATH": paths}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)


def test_no_batch_makes_a_kernel_leave_its_memory(tmp_path, record_property):
    """Shapes, dtypes, strides, labels and numbers of all kinds; to repeat one case: TPKD_FUZZ_SEED and the seed."""
    reason = why_not_sanitized(tmp_path)
    if reason:
        pytest.skip(reason)
    environment = build_sanitized_kernels(tmp_path)
    print(f"TPKD_FUZZ_SEED={SEED}, {CASES} cases")
    found = run([str(HERE / "kernel_fuzz.py"), str(tmp_path), str(SEED), str(CASES)], **environment)
    last = found.stdout.splitlines()[-1:]
    assert found.returncode == 0, f"after {last}: {found.stderr[:6000]}"
    assert last == ["done"]
    record_property("fault: hostile batches through the sanitized kernels", CASES)


@pytest.mark.skipif(not FULL, reason="all tests of the objectives again: `make test-faults`")
def test_the_kernel_of_the_baseline_processor_passes_the_tests_of_the_objectives(tmp_path):
    build_kernels(tmp_path)
    found = run(["-c", OBJECTIVES, str(tmp_path)])
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
