"""After the tests: how many faults were injected, summed over the tests that count them."""

from collections import Counter

FAULT = "fault: "


def pytest_terminal_summary(terminalreporter):
    counts = Counter()
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name.startswith(FAULT):
                counts[name.removeprefix(FAULT)] += value
    if counts:
        faults = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        terminalreporter.write_line(f"faults injected and survived: {faults}")
