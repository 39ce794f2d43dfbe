"""Before the tests: Ctrl-C as in a terminal. After them: how many faults were injected, over all that count them."""

import signal
from collections import Counter

FAULT = "fault: "


def pytest_configure():
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
