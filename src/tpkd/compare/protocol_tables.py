"""Tables of the protocol, the settings of every method, versions and hashes."""

import json
from typing import Any

from tpkd.compare.record import ReportRecords
from tpkd.report.tables import Column, Row, Table, Traced

_HIDDEN = ("log_every", "monitor_every", "snapshots", "snapshot_seeds", "initial.", "device")
"""Keys that do not affect any number in a table."""


def protocol_table(records: ReportRecords) -> Table:
    """Every configuration key shared by all cells."""
    shared = records.comparison.protocol
    rows = tuple(
        (key, plain(value)) for key, value in shared.items() if value is not None and not key.startswith(_HIDDEN)
    )
    columns = (Column("key", text=True), Column("value", text=True))
    return Table("protocol", "The protocol that all cells share, resolved.", columns, rows)


def settings_table(records: ReportRecords) -> Table:
    """Settings of each method, and what had to be reconstructed."""
    rows = tuple(
        (
            records.methods.title(method.objective),
            ", ".join(f"{name} {plain(value)}" for name, value in method.settings.items() if value is not None)
            or "none",
            f"{method.optimizer.get('weight_decay', 0.0):g}",
            ", ".join(f"{key} {plain(value)}" for key, value in method.overrides.items()) or "nothing",
            method.reconstruction,
        )
        for method in records.comparison.settings
    )
    headings = ("method", "settings", "weight decay", "set for it alone", "reconstruction")
    columns = tuple(Column(heading, text=True) for heading in headings)
    return Table("settings", "Settings of every method, defaults included.", columns, rows)


def source_table(records: ReportRecords) -> Table:
    """Data, networks and versions, with their hashes."""
    seen, record = Traced(records).comparison, records.comparison
    rows: list[Row] = []
    if record.data is not None:
        facts = seen.data
        train, test, classes = (number("count") for number in (facts.train_samples, facts.test_samples, facts.classes))
        said = (record.data.name, ": ", train, " training and ", test, " test samples, ", classes, " classes")
        rows.append(("data", said, record.data.fingerprint))
    networks = (("student at its start", record.start, seen.start), ("teacher", record.teacher, seen.teacher))
    for name, network, part in networks:
        if network is not None:
            accuracy = () if network.accuracy is None else (", accuracy ", part.accuracy("percent"), " %")
            rows.append((name, (network.model, *accuracy), network.fingerprint))
    for group in record.environments:
        versions = ", ".join(f"{name} {version}" for name, version in group.libraries.items())
        where = f"Python {group.python}, {versions}, on {group.device}"
        rows.append((f"environment of {_cells(group.cells, len(record.cells))}", where, ""))
    columns = (Column("what", text=True), Column("which", text=True), Column("SHA-256", text=True))
    return Table("sources", "Inputs.", columns, tuple(rows))


def _cells(cells: tuple[str, ...], total: int) -> str:
    if len(cells) == total:
        return "all cells"
    return ", ".join(cells) if len(cells) <= 4 else f"{len(cells)} cells"


def plain(value: Any) -> str:
    """A configuration value as text.

    Example:
        >>> plain([1, 2]), plain("sgd"), plain(0.001), plain(True)
        ('[1, 2]', 'sgd', '0.001', 'true')
    """
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)
