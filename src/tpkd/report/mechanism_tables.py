"""The tables of the four mechanism studies, in the paper's layout."""

from collections.abc import Iterator, Mapping

from tpkd.records import StudyRecord
from tpkd.report.bundle import ReportRecords
from tpkd.report.methods import PAPER_CERTIFICATE, PAPER_CONTINUATION, PAPER_EXACT, PAPER_STATES, title
from tpkd.report.tables import Column, Look, Row, Table


def mechanism_tables(records: ReportRecords) -> list[Table]:
    """Those whose records are there."""
    made = (states_table(records), exact_table(records), certificate_table(records), continuation_table(records))
    return [table for table in made if table is not None]


def states_table(records: ReportRecords) -> Table | None:
    """Blocking on the snapshots, for both splits, because the paper does not say which images it used."""
    if records.blocking is None:
        return None
    look = Look(records.to_dict())
    rows: list[Row] = []
    for part, split in enumerate(records.blocking.splits):
        for index, state in enumerate(split.states):
            here = f"blocking.splits.{part}.states.{index}"
            numbers: Row = (
                look(f"{here}.pairs", "count"),
                look(f"{here}.blocked_share", "percent"),
                look(f"{here}.conditional_loss", "nats"),
                look(f"{here}.transfer_cost", "nats"),
            )
            rows.append((state.state.name, split.split, *numbers, *_paper(records, PAPER_STATES, state.state.name, 3)))
    columns = (
        Column("student state", text=True),
        Column("images", text=True),
        Column("pairs"),
        Column("blocked (%)"),
        Column("remaining conditional KL"),
        Column("minimum log-odds cost"),
        *_paper_columns(records, ("paper: blocked", "KL", "cost")),
    )
    caption = "Full-imitation blocking leaves conditional knowledge unlearned: means within the blocked set, in nats."
    return Table("states", caption, columns, tuple(rows), tuple(_scalings(records.blocking)))


def exact_table(records: ReportRecords) -> Table | None:
    """Steps of the head alone."""
    if records.exact_head is None:
        return None
    look = Look(records.to_dict())
    rows: list[Row] = []
    for index, state in enumerate(records.exact_head.states):
        here = f"exact_head.states.{index}"
        lost = (look(f"{here}.lost_examples.{name}", "count") for name in ("tpkd", "tpkd-no-projection"))
        numbers: Row = (
            look(f"{here}.gain", "milli"),
            look(f"{here}.conditional_change", "milli"),
            look(f"{here}.least_retention", "percent"),
            look(f"{here}.least_cosine", "decimal"),
            look(f"{here}.potential_change", "milli"),
            *lost,
        )
        rows.append((state.state.name, *numbers, *_paper(records, PAPER_EXACT, state.state.name, 5)))
    columns = (
        Column("state", text=True),
        Column("gain (10⁻³)"),
        Column("KL change (10⁻³)"),
        Column("min. retained (%)"),
        Column("min. cosine"),
        Column("Φ change (10⁻³)"),
        Column("examples that lost a margin: TPKD"),
        Column("without projection"),
        *_paper_columns(records, ("paper: gain", "KL change", "retained", "cosine", "Φ change")),
    )
    note = (
        "KL is conditional KL. Gain is CE minus TPKD at the endpoint; changes are TPKD's endpoint minus the common "
        "start. A margin is lost when it is below that of the CE step."
    )
    caption = "Exact head steps learn conditional structure while preserving label-step progress."
    return Table("exact", caption, columns, tuple(rows), (note, *_scalings(records.exact_head)))


def certificate_table(records: ReportRecords) -> Table | None:
    """Both geometric tests and the native pairs."""
    if records.certificates is None:
        return None
    look = Look(records.to_dict())
    rows: list[Row] = []
    for index, state in enumerate(records.certificates.states):
        here, total = f"certificates.states.{index}", f"/{len(state.batches)}"
        counts = ("conditional_passes", "joint_passes", "positive_pairs")
        passed: Row = tuple((look(f"{here}.{name}", "count"), total) for name in counts)
        gain = look(f"{here}.gain", "milli")
        rows.append((state.state.name, *passed, gain, *_paper(records, PAPER_CERTIFICATE, state.state.name, 4)))
    columns = (
        Column("state", text=True),
        Column("conditional test"),
        Column("joint descent test"),
        Column("positive pairs"),
        Column("mean gain (10⁻³)"),
        *_paper_columns(records, ("paper: conditional", "joint", "pairs", "gain")),
    )
    note = (
        "The tests are sufficient: a batch that passes must gain in a small enough step, one that does not may gain "
        "too. Gain is compensation-only's conditional KL after one training iteration minus TPKD's."
    )
    caption = "The conditional advantage under ordinary backpropagation."
    return Table("certificate", caption, columns, tuple(rows), (note, *_scalings(records.certificates)))


def continuation_table(records: ReportRecords) -> Table | None:
    """Conditional KL of the observed samples on the way."""
    record = records.continuation
    if record is None:
        return None
    look = Look(records.to_dict())
    rows: list[Row] = []
    for index, point in enumerate(record.curves[0].points):
        values = (
            look(f"continuation.curves.{curve}.points.{index}.conditional_loss", "nats")
            for curve in range(len(record.curves))
        )
        rows.append((str(point.iteration), *values))
    ends = (("TPKD − CE", "tpkd_minus_ce"), ("TPKD − compensation only", "tpkd_minus_compensation"))
    notes: list[str] = []
    for said, name in ends:
        notes.append(f"At the end, {said}: {look(f'continuation.{name}', 'decimal')} nats.")
    if records.paper_domain == "vision":
        start, end, minus_ce, minus_compensation = PAPER_CONTINUATION
        notes.append(f"Paper: from {start} to {end}; {minus_ce} to CE and {minus_compensation} to compensation only.")
    columns = (Column("iteration", text=True), *(Column(title(curve.objective)) for curve in record.curves))
    caption = f"Conditional KL from {record.state.name} on, in nats, on training samples apart from those learned from."
    return Table("continuation", caption, columns, tuple(rows), (*notes, *_scalings(record)))


def checks_table(records: ReportRecords) -> Table | None:
    """Every statement that the studies looked at case by case."""
    look = Look(records.to_dict())
    rows: list[Row] = []
    for name, record in records.studies.items():
        for index, check in enumerate(record.checks):
            here = f"{name}.checks.{index}"
            kind = "theorem" if check.theorem else "observation"
            counts = (look(f"{here}.cases", "count"), look(f"{here}.violations", "count"))
            rows.append((check.statement, name.replace("_", " "), kind, *counts))
    columns = (Column("statement", text=True), Column("study", text=True), Column("kind", text=True))
    caption = "Statements checked case by case; a theorem must hold in every case, an observation may fail."
    made = Table("checks", caption, (*columns, Column("cases"), Column("violations")), tuple(rows))
    return made if rows else None


def _scalings(record: StudyRecord) -> Iterator[str]:
    for scaling in record.scalings:
        yield f"{scaling.name}: {scaling.used:,} instead of {scaling.asked:,}, because {scaling.reason}."


def _paper_columns(records: ReportRecords, titles: tuple[str, ...]) -> tuple[Column, ...]:
    return tuple(map(Column, titles)) if records.paper_domain == "vision" else ()


def _paper(records: ReportRecords, numbers: Mapping[str, tuple[str, ...]], state: str, width: int) -> tuple[str, ...]:
    if records.paper_domain != "vision":
        return ()
    return numbers.get(state, ("",) * width)
