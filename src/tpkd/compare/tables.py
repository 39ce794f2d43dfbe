"""The tables of a comparison, in the paper's layout where it has the same table."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from tpkd.compare.record import Cell, MethodSummary, PairedDifference, ReportRecords
from tpkd.report.tables import Column, Content, Number, Row, Table, Traced

BOLD = "In bold: the largest mean."
STAMPED = (
    *("claims", "application", "ablation", "seeds", "final"),
    *("methods", "classes", "confusions", "confidence"),
)
"""Tables that show the students, or their accuracies."""
DOMAIN_TITLES = {"vision": "CIFAR-100", "text": "CLINC150"}


def application_table(records: ReportRecords) -> Table:
    """Every method but the controls after training, with their paired differences from KD and CE.

    Paper: tab:application. The paper's numbers are shown only if the protocol is the paper's.
    """
    record, methods = records.comparison, _main_methods(records)
    interval = f", with their {100 * record.confidence_level:g} % t-interval" if record.has_intervals else ""
    return _methods_table(
        records,
        "application",
        f"Full-training accuracy {record.whose}: mean ± sample standard deviation (n − 1) over "
        f"{_seeds(records, methods)}; differences are paired by seed{interval}.",
        (Column("method", text=True),),
        methods,
        references=("kd", "ce"),
    )


def _main_methods(records: ReportRecords) -> dict[str, Row]:
    """Every objective that is not a control, under its title; those that are not installed here come last."""
    known = [method.name for method in records.methods.methods]
    names = (*known, *(name for name in records.comparison.objectives if name not in known))
    return {name: (records.methods.title(name),) for name in names if not records.methods[name].control}


def ablation_table(records: ReportRecords) -> Table:
    """What each component of TPKD contributes; uses the same cells as the main table.

    Paper: tab:ablation.
    """
    shown = [method for method in records.methods.methods if method.ablation]
    # TPKD as a whole comes last, after its parts.
    parts = {method.name: method.ablation or () for method in sorted(shown, key=lambda method: method.name == "tpkd")}
    return _methods_table(
        records,
        "ablation",
        f"Component ablations: mean ± sample standard deviation (n − 1) over {_seeds(records, parts)}.",
        (Column("condition", text=True), Column("direction", text=True)),
        parts,
    )


def _methods_table(
    records: ReportRecords,
    name: str,
    caption: str,
    headings: tuple[Column, ...],
    names: Mapping[str, Row],
    *,
    references: tuple[str, ...] = (),
) -> Table:
    """Accuracy by method; `names` lists the objectives in order, with the cells before their numbers."""
    seen = {method.objective: each for method, each in _methods(records)}
    validated = any(method.validation_mean is not None for method in records.comparison.methods)
    rows: tuple[Row, ...] = tuple(
        (
            *names[objective],
            _accuracy(seen[objective]),
            *([_validation(seen[objective])] if validated else []),
            *_paper_cell(records, objective),
            *(_difference(records, objective, reference) for reference in references),
        )
        for objective in names
        if objective in seen
    )
    best = _best(records, names)
    differences = (Column(f"minus {records.methods.title(reference)} (points)") for reference in references)
    validation = [Column("validation (%)")] if validated else []
    columns = (*headings, Column("accuracy (%)"), *validation, *_paper_column(records), *differences)
    return Table(name, caption, columns, rows, (*_seed_notes(records, names), *([BOLD] if best else [])), best)


def seeds_table(records: ReportRecords) -> Table:
    """Every cell of the grid."""
    record = records.comparison
    contents: dict[tuple[str, int], Content] = {
        (cell.objective, cell.seed): seen.accuracy("percent") if cell.status == "finished" else cell.status
        for cell, seen in _cells(records)
    }
    rows = tuple(
        (records.methods.title(objective), *(contents.get((objective, seed), "") for seed in record.seeds))
        for objective in record.objectives
    )
    columns = (Column("method", text=True), *(Column(f"seed {seed}") for seed in record.seeds))
    problems = [f"{cell.name} failed: {cell.problem}" for cell in record.cells if cell.problem]
    return Table("seeds", "Accuracy of every cell (%).", columns, rows, (*_selected_epochs(records), *problems))


def _selected_epochs(records: ReportRecords) -> Iterator[str]:
    """The epochs of selected students, by method and in the order of seeds."""
    chosen: dict[str, list[str]] = {}
    for cell in records.comparison.cells:
        if cell.selected_epoch is not None:
            chosen.setdefault(records.methods.title(cell.objective), []).append(str(cell.selected_epoch))
    said = "; ".join(f"{title} {', '.join(epochs)}" for title, epochs in chosen.items())
    if said:
        yield f"Epochs of the students, by seed: {said}."


def stamped(tables: Mapping[str, Table | None], stamp: str) -> dict[str, Table | None]:
    """Tables with a sentence in the captions of those that show accuracies or students; the same without a stamp."""
    return {
        name: replace(table, caption=f"{table.caption} {stamp}") if stamp and table and name in STAMPED else table
        for name, table in tables.items()
    }


def cost_table(records: ReportRecords) -> Table:
    """Steps, examples and wall-clock time of a run."""
    first: dict[str, Traced] = {}
    for cell, seen in _cells(records):
        if cell.status == "finished":
            first.setdefault(cell.objective, seen)
    rows: tuple[Row, ...] = tuple(
        (
            records.methods.title(method.objective),
            *(number("count") for number in (run.steps, run.samples, run.skipped_steps)),
            seen.seconds("seconds"),
        )
        for method, seen in _methods(records)
        if (run := first.get(method.objective)) is not None
    )
    columns = (Column("method", text=True), Column("steps"), Column("examples"), Column("steps skipped"))
    return Table(
        "cost",
        "What a run took: optimiser steps, examples and steps left out by mixed precision (all of the first seed), "
        "and mean wall-clock seconds over seeds, on a machine that may have done other work.",
        (*columns, Column("seconds")),
        rows,
    )


def selection_table(records: ReportRecords) -> Table | None:
    """Share of samples that took the teacher's target, per epoch; None if no objective selects."""
    chosen: dict[str, list[Content]] = {
        f"{records.methods.title(cell.objective)}, seed {cell.seed}": [rate("share") for rate in seen.selection_rates]
        for cell, seen in _cells(records)
        if cell.selection_rates
    }
    if not chosen:
        return None
    rows: tuple[Row, ...] = tuple(
        (str(epoch), *rates) for epoch, rates in enumerate(zip_longest(*chosen.values(), fillvalue=""), start=1)
    )
    caption = "Share of training samples whose target was the teacher's, by epoch and seed."
    return Table("selection", caption, (Column("epoch", text=True), *map(Column, chosen)), rows)


FINAL = {
    "blocked_share": ("blocked", "share"),
    "conditional_loss": ("conditional loss (nats)", "nats"),
    "conditional_loss_blocked": ("conditional loss, blocked (nats)", "nats"),
    "transfer_cost": ("transfer cost (nats)", "nats"),
    "imitation_loss": ("teacher KL (nats)", "nats"),
    "label_loss": ("label loss (nats)", "nats"),
}
"""Columns of the final-student table: field of `FinalState` -> heading and format."""


def final_table(records: ReportRecords) -> Table | None:
    """The final students compared with the teacher on the test split; None without a teacher.

    A field that was added after these records were written gets no column.
    """
    methods = [(method, seen) for method, seen in _methods(records) if method.final]
    shown = {name: column for name, column in FINAL.items() if any(name in method.final for method, _ in methods)}
    rows: tuple[Row, ...] = tuple(
        (records.methods.title(method.objective), *(seen.final[name](kind) for name, (_, kind) in shown.items()))
        for method, seen in methods
    )
    columns = (Column("method", text=True), *(Column(heading) for heading, _ in shown.values()))
    caption = "Final students against the teacher on the test split, means over examples and seeds."
    return Table("final", caption, columns, rows) if rows else None


def _methods(records: ReportRecords) -> Iterable[tuple[MethodSummary, Traced]]:
    return zip(records.comparison.methods, Traced(records).comparison.methods, strict=True)


def _cells(records: ReportRecords) -> Iterable[tuple[Cell, Traced]]:
    return zip(records.comparison.cells, Traced(records).comparison.cells, strict=True)


def _best(records: ReportRecords, objectives: Collection[str]) -> frozenset[int]:
    """Rows with the largest mean; empty if means are over different seeds or all equal."""
    known = {method.objective: method for method in records.comparison.methods}
    rows = [known[name] for name in objectives if name in known]
    means = [method.mean for method in rows if method.mean is not None]
    if len({method.seeds for method in rows}) != 1 or len(means) < len(rows) or max(means) == min(means):
        return frozenset()
    return frozenset(index for index, mean in enumerate(means) if mean == max(means))


def _accuracy(method: Traced) -> Content:
    return _with_deviation(method.mean("percent"), method.standard_deviation("percent"))


def _validation(method: Traced) -> Content:
    return _with_deviation(method.validation_mean("percent"), method.validation_standard_deviation("percent"))


def _with_deviation(mean: Number, deviation: Number) -> Content:
    return (mean, " ± ", deviation) if deviation.value is not None else mean


def _difference(records: ReportRecords, objective: str, reference: str) -> Content:
    found = find_pair(records, objective, reference)
    if found is None:
        return ""
    mean, low, high = (number("points") for number in (found[1].mean, found[1].low, found[1].high))
    return mean if low.value is None else (mean, " [", low, ", ", high, "]")


def find_pair(records: ReportRecords, objective: str, reference: str) -> tuple[PairedDifference, Traced] | None:
    """The paired difference of two objectives; None if they share no seed."""
    for method, seen in _methods(records):
        for pair, part in zip(method.versus, seen.versus, strict=True):
            if (method.objective, pair.reference) == (objective, reference):
                return pair, part
    return None


def _paper_column(records: ReportRecords) -> tuple[Column, ...]:
    domain = records.paper_domain
    return () if domain is None else (Column(f"paper, {DOMAIN_TITLES[domain]} (%)"),)


def _paper_cell(records: ReportRecords, objective: str) -> tuple[Content, ...]:
    domain = records.paper_domain
    if domain is None:
        return ()
    found = records.methods[objective].paper_accuracy.get(domain)
    return (f"{found[0]:.2f} ± {found[1]:.2f}" if found else "",)


def _seeds(records: ReportRecords, objectives: Collection[str]) -> str:
    """The seeds of these rows, if all rows have the same."""
    groups = _by_seeds(records, objectives)
    return "the seeds of each" if len(groups) > 1 else listed_seeds(next(iter(groups), records.comparison.seeds))


def _by_seeds(records: ReportRecords, objectives: Collection[str]) -> dict[tuple[int, ...], list[str]]:
    """Requested seeds -> the objectives they were requested for; most seeds first."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for method in records.comparison.methods:
        if method.objective in objectives:
            groups.setdefault(method.asked_seeds, []).append(records.methods.title(method.objective))
    return dict(sorted(groups.items(), key=lambda group: -len(group[0])))


def listed_seeds(seeds: Sequence[int]) -> str:
    """Seeds as text, such as `seeds 42, 43`."""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _seed_notes(records: ReportRecords, objectives: Collection[str]) -> Iterator[str]:
    """Notes on rows with different seeds and on seeds that did not finish."""
    groups = _by_seeds(records, objectives)
    if len(groups) > 1:
        yield "; ".join(f"{', '.join(titles)}: {listed_seeds(seeds)}" for seeds, titles in groups.items()) + "."
    for method in records.comparison.methods:
        if method.objective in objectives and method.missing_seeds:
            missing = ", ".join(map(str, method.missing_seeds))
            yield f"{records.methods.title(method.objective)}: n = {len(method.seeds)}, without seed {missing}."
