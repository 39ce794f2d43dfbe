"""Any number of shards is read under any limit of open files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tpkd

pytest.importorskip("resource")

TESTS = Path(__file__).parent.parent


def test_three_thousand_shards_with_256_files(tmp_path):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(Path(tpkd.__file__).parents[1])]),
    }
    command = [sys.executable, TESTS / "faults" / "cache_many_shards.py", tmp_path / "cache", "256", "3000"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "cache").glob("shard-*.safetensors"))) == 3000
    # A quarter of the limit is for maps, in six caches together, and one more for the index of each.
    assert int(done.stdout) <= 256 // 4 + 6 + 32
