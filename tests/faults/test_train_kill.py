"""Training that is killed at any instant continues and ends with the bits of a run that was not."""

import json
import os
import subprocess
import sys
from pathlib import Path

OBJECTIVES = ("ce", "tpkd", "dhkd", "dto-kd", "kd-selecting")
KILLS = 20 if os.environ.get("TPKD_FAULTS") == "full" else 2


def test_kill_anywhere(tmp_path, record_property):
    script = Path(__file__).with_name("train_crash.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(KILLS), *OBJECTIVES],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report["objective"] for report in reports] == list(OBJECTIVES)
    for report in reports:
        assert report["continued"] >= KILLS * 3 // 4, report
        print(report)
    record_property("fault: kills of a training run", sum(report["kills"] for report in reports))
    record_property("fault: of them inside a save", sum(report["in_saves"] for report in reports))
