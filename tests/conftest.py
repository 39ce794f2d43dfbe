"""What holds for all tests: Ctrl-C as in a terminal, graphs of this processor alone, a count of injected faults."""

import getpass
import os
import signal
import tempfile
from collections import Counter
from pathlib import Path

FAULT = "fault: "


def pytest_configure():
    # torch keeps compiled graphs from run to run without a note of the instructions that it was told to use, and code
    # with other instructions does not compile.
    if capability := os.environ.get("ATEN_CPU_CAPABILITY"):
        graphs = Path(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}_{capability}")
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(graphs))
    # A shell starts what runs in its background with Ctrl-C ignored, and every process of the tests would inherit that.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter):
    counts = Counter()
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name.startswith(FAULT):
                counts[name.removeprefix(FAULT)] += value
    if counts:
        faults = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        terminalreporter.write_line(f"faults injected and survived: {faults}")
