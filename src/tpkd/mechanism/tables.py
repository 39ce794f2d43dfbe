"""The mechanism studies as tables, in the paper's layout, and what else is to be said about them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import fmean

from tpkd.mechanism.paper import (
    PAPER_BETA,
    PAPER_CERTIFICATE,
    PAPER_CONTINUATION,
    PAPER_EXACT,
    PAPER_STATES,
    departures,
)
from tpkd.mechanism.record import (
    FRESH,
    BlockingRecord,
    CertificatesRecord,
    ContinuationRecord,
    ExactHeadRecord,
    StudyRecord,
    states_of,
)
from tpkd.report.methods import Title
from tpkd.report.tables import Column, Row, Table, Traced


def mechanism_tables(studies: Mapping[str, StudyRecord], paper_domain: str | None, title: Title) -> list[Table]:
    """One table per study; the paper's numbers stand beside ours where protocol and study are its own."""
    runs, papers = {_run(record, title) for record in studies.values()}, paper_domain == "vision"
    tables = []
    for record in studies.values():
        differences = departures(record) if papers else ()
        notes = [f"Of the run {_run(record, title)}."] if len(runs) > 1 else []
        if differences:
            reason = "; ".join(differences)
            notes.insert(0, f"The paper's numbers are left out, because the study is another: {reason}.")
        table = study_table(record, title, paper=papers and not differences)
        tables.append(replace(table, notes=(*table.notes, *notes)))
    return tables


def _run(record: StudyRecord, title: Title) -> str:
    return f"{title(record.source.objective)}, seed {record.source.seed}"


def study_table(record: StudyRecord, title: Title, *, paper: bool = False) -> Table:
    """The table of a study.

    Paper: section 6, in the layout of its tables; the continuation, which has none there, has one column an objective.
    """
    if isinstance(record, BlockingRecord):
        return _states(record, paper)
    if isinstance(record, ExactHeadRecord):
        return _exact(record, paper)
    if isinstance(record, CertificatesRecord):
        return _certificate(record, paper)
    if isinstance(record, ContinuationRecord):
        return _continuation(record, paper, title)
    raise ValueError(f"record: expected a mechanism study, got {type(record).__name__}")


def _states(record: BlockingRecord, paper: bool) -> Table:
    """Blocking on the snapshots, for both splits, because the paper does not say which samples it used."""
    rows: list[Row] = []
    for split, splits in zip(record.splits, Traced(record, "blocking").splits, strict=True):
        for state, seen in zip(split.states, splits.states, strict=True):
            numbers: Row = (
                seen.pairs("count"),
                seen.blocked_share("percent"),
                seen.conditional_loss("nats"),
                seen.transfer_cost("nats"),
            )
            rows.append((state.state.name, split.split, *numbers, *_published(paper, PAPER_STATES, state.state.name)))
    columns = (
        Column("student state", text=True),
        Column("samples", text=True),
        Column("pairs"),
        Column("blocked (%)"),
        Column("remaining conditional KL"),
        Column("minimum log-odds cost"),
        *_published_columns(paper, "paper: blocked", "KL", "cost"),
    )
    caption = "Full-imitation blocking leaves conditional knowledge unlearned: means within the blocked set, in nats."
    missing = (f"{split}: left out, because {reason}." for split, reason in record.missing.items())
    return Table("states", caption, columns, tuple(rows), (*_given(record), *_scalings(record), *missing))


def _exact(record: ExactHeadRecord, paper: bool) -> Table:
    """Steps of the head alone."""
    rows: list[Row] = []
    for state, seen in zip(record.states, Traced(record, "exact_head").states, strict=True):
        numbers: Row = (
            seen.gain("milli"),
            seen.conditional_change("milli"),
            seen.least_retention("percent"),
            seen.least_cosine("decimal"),
            seen.potential_change("milli"),
            *(seen.lost_examples[name]("count") for name in ("tpkd", "tpkd-no-projection")),
        )
        rows.append((state.state.name, *numbers, *_published(paper, PAPER_EXACT, state.state.name)))
    columns = (
        Column("state", text=True),
        Column("gain (10⁻³)"),
        Column("KL change (10⁻³)"),
        Column("min. retained (%)"),
        Column("min. cosine"),
        Column("Φ change (10⁻³)"),
        Column("examples that lost a margin: TPKD"),
        Column("without projection"),
        *_published_columns(paper, "paper: gain", "KL change", "retained", "cosine", "Φ change"),
    )
    note = (
        "KL is conditional KL. Gain is CE minus TPKD at the endpoint; changes are TPKD's endpoint minus the common "
        "start. A margin is lost when it is below that of the CE step."
    )
    caption = "Exact head steps learn conditional structure while preserving label-step progress."
    notes = (note, *_given(record), *_coefficient(record), *_scalings(record))
    return Table("exact", caption, columns, tuple(rows), notes)


def _certificate(record: CertificatesRecord, paper: bool) -> Table:
    """Both geometric tests and the native pairs."""
    rows: list[Row] = []
    for state, seen in zip(record.states, Traced(record, "certificates").states, strict=True):
        counts = (seen.conditional_passes, seen.joint_passes, seen.positive_pairs)
        passed: Row = tuple((number("count"), f"/{len(state.batches)}") for number in counts)
        published = _published(paper, PAPER_CERTIFICATE, state.state.name)
        rows.append((state.state.name, *passed, seen.gain("milli"), *published))
    columns = (
        Column("state", text=True),
        Column("conditional test"),
        Column("joint descent test"),
        Column("positive pairs"),
        Column("mean gain (10⁻³)"),
        *_published_columns(paper, "paper: conditional", "joint", "pairs", "gain"),
    )
    note = (
        "The tests are sufficient: a batch that passes must gain in a small enough step, one that does not may gain "
        "too. Gain is compensation-only's conditional KL after one training iteration minus TPKD's."
    )
    caption = "The conditional advantage under ordinary backpropagation."
    skipped, steps = sum(state.skipped_steps for state in record.states), sum(len(s.batches) for s in record.states)
    about = (*_given(record), *_coefficient(record), *_measured(record))
    notes = (note, *about, *_skipped(skipped, 2 * steps), *_scalings(record))
    return Table("certificate", caption, columns, tuple(rows), notes)


def _continuation(record: ContinuationRecord, paper: bool, title: Title) -> Table:
    """Conditional KL and label loss of the observed samples on the way."""
    seen = Traced(record, "continuation")
    rows: list[Row] = []
    for index, point in enumerate(record.curves[0].points):
        values = (
            getattr(curve.points[index], name)("nats")
            for name in ("conditional_loss", "label_loss")
            for curve in seen.curves
        )
        rows.append((str(point.iteration), *values))
    notes = [_end(record, *names) for names in (("ce", "CE"), ("compensation-only", "compensation only"))]
    if paper:
        start, end, minus_ce, minus_compensation = PAPER_CONTINUATION
        notes.append(f"Paper: from {start} to {end}; {minus_ce} to CE and {minus_compensation} to compensation only.")
    titles = [title(curve.objective) for curve in record.curves]
    both = (f"{kind}: {name}" for kind in ("KL", "label loss") for name in titles)
    columns = (Column("iteration", text=True), *map(Column, both))
    observed = "on training samples apart from those learned from"
    caption = f"Conditional KL and label loss from {record.state.name} on, in nats, {observed}."
    curves = [*record.curves, *(curve for repeat in record.repeats for curve in repeat.curves)]
    notes += [
        *_given(record),
        *_coefficient(record),
        *_skipped(sum(curve.skipped_steps for curve in curves), record.iterations * len(curves)),
        *_scalings(record),
    ]
    return Table("continuation", caption, columns, tuple(rows), tuple(notes))


def _end(record: ContinuationRecord, other: str, said: str) -> str:
    """How far TPKD ends from another objective, in both losses; over repeats the mean, and in how many it is below."""
    found = [record.differences(other, name) for name in ("conditional_loss", "label_loss")]
    kinds = ("conditional KL", "label loss")
    parts = [f"{fmean(values):+.4f} nats of {kind}" for values, kind in zip(found, kinds, strict=True)]
    if not record.repeats:
        return f"At the end, TPKD − {said}: {', '.join(parts)}."
    counts = [sum(value < 0 for value in values) for values in found]
    below = f"below {said} in {counts[0]} and {counts[1]} of them"
    return f"At the end, TPKD − {said}: {', '.join(parts)}; means of {len(found[0])} repeats, {below}."


def study_notes(record: StudyRecord) -> Iterator[str]:
    """What was counted beside the table of a study, and what was checked."""
    if isinstance(record, ExactHeadRecord):
        for state in record.states:
            lost = ", ".join(f"{name} {number}" for name, number in state.lost_examples.items())
            yield (
                f"{state.state.name}: TPKD gains on {state.positive_examples} of {state.examples} examples; "
                f"examples that lost a margin of the CE step: {lost}"
            )
    for check in record.checks:
        if check.violations:
            kind = "VIOLATION" if check.theorem else "not always"
            worst = "at worst not a number" if check.worst is None else f"by up to {check.worst:.3g}"
            yield f"{kind}: {check.statement}: {check.violations} of {check.cases} cases, {worst}"
    theorems = [check for check in record.checks if check.theorem]
    if theorems and not record.violations:
        yield f"{sum(check.cases for check in theorems):,} cases of {len(theorems)} statements of the theory hold"


def checks_table(studies: Mapping[str, StudyRecord]) -> Table | None:
    """Every statement that the studies looked at case by case."""
    rows: list[Row] = []
    for name, record in studies.items():
        for check, seen in zip(record.checks, Traced(record, name).checks, strict=True):
            kind = "theorem" if check.theorem else "observation"
            numbers = (seen.cases("count"), seen.violations("count"))
            rows.append((check.statement, name.replace("_", " "), kind, *numbers))
    columns = (Column("statement", text=True), Column("study", text=True), Column("kind", text=True))
    caption = "Statements checked case by case; a theorem must hold in every case, an observation may fail."
    made = Table("checks", caption, (*columns, Column("cases"), Column("violations")), tuple(rows))
    return made if rows else None


def _given(record: StudyRecord) -> Iterator[str]:
    """Which states are files, and what their training iterations started with."""
    states = states_of(record)
    files = ", ".join(f"{state.name} ({state.file})" for state in states if state.file)
    if files:
        yield f"Weights from files: {files}."
    histories = ", ".join(
        f"{state.name} ({state.optimizer})" for state in states if state.optimizer not in (None, FRESH)
    )
    if histories:
        yield f"Optimiser states from files: {histories}."
    fresh = ", ".join(state.name for state in states if state.optimizer == FRESH)
    if fresh:
        yield f"No optimiser state is known for {fresh}: training iterations start there without momentum or history."


def _coefficient(record: ExactHeadRecord | CertificatesRecord | ContinuationRecord) -> Iterator[str]:
    if record.beta != PAPER_BETA:
        yield f"TPKD and its controls have the coefficient β = {record.beta:g} instead of the paper's 1/2."


def _skipped(skipped: int, steps: int) -> Iterator[str]:
    if skipped:
        yield (
            f"{skipped} of {steps} training iterations were left out by mixed precision, whose scaler found a gradient "
            "that overflowed: there an end is the start."
        )


def _measured(record: CertificatesRecord) -> Iterator[str]:
    if record.beta != PAPER_BETA:
        pairs = [batch.joint for state in record.states for batch in state.batches if batch.joint is not None]
        passed = sum(pair.passes_measured for pair in pairs)
        yield (
            f"The joint limit is the one for any coefficient, {record.joint_limit:.3g}; by their measured angle "
            f"{passed} of {len(pairs)} batches pass."
        )


def _scalings(record: StudyRecord) -> Iterator[str]:
    for scaling in record.scalings:
        yield f"{scaling.name}: {scaling.used:,} instead of {scaling.asked:,}, because {scaling.reason}."


def _published_columns(paper: bool, *titles: str) -> tuple[Column, ...]:
    return tuple(map(Column, titles)) if paper else ()


def _published(paper: bool, numbers: Mapping[str, tuple[str, ...]], state: str) -> tuple[str, ...]:
    width = len(next(iter(numbers.values())))
    return numbers.get(state, ("",) * width) if paper else ()
