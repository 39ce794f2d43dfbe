"""The tables of a comparison, in the paper's layout where the paper has them."""

from collections.abc import Iterator

from tpkd.compare.bundle import ReportRecords
from tpkd.compare.record import MethodSummary
from tpkd.report.methods import ABLATION, APPLICATION, PAPER_ACCURACY, title
from tpkd.report.tables import Column, Content, Look, Row, Table

BOLD = "In bold: the largest mean."
DOMAIN_TITLES = {"vision": "CIFAR-100", "text": "CLINC150"}


def application_table(records: ReportRecords) -> Table:
    """The ten methods after the last epoch, and their paired differences to KD and CE.

    Paper: tab:application. Its numbers stand beside ours only where the protocol is the paper's.
    """
    look, known = Look(records.to_dict()), _positions(records)
    rows: list[Row] = []
    for objective in (name for name in APPLICATION if name in known):
        at = known[objective]
        differences = (_difference(records, look, at, reference) for reference in ("kd", "ce"))
        rows.append((title(objective), _accuracy(look, at), *_paper_cell(records, objective), *differences))
    best = _best(records, APPLICATION)
    columns = (
        Column("method", text=True),
        Column("accuracy (%)"),
        *_paper_column(records),
        Column("minus KD (points)"),
        Column("minus CE (points)"),
    )
    return Table(
        "application",
        f"Full-training accuracy after the last epoch: mean ± sample standard deviation (n − 1) over "
        f"{_seeds(records, APPLICATION)}; differences are paired by seed{_with_interval(records)}.",
        columns,
        tuple(rows),
        (*_seed_notes(records, APPLICATION), *([BOLD] if best else [])),
        best,
    )


def ablation_table(records: ReportRecords) -> Table:
    """What each part of TPKD contributes; the same cells as in the main table, nothing is trained twice.

    Paper: tab:ablation.
    """
    look, known = Look(records.to_dict()), _positions(records)
    rows: list[Row] = []
    for objective, (condition, direction) in ABLATION.items():
        if objective not in known:
            continue
        rows.append((condition, direction, _accuracy(look, known[objective]), *_paper_cell(records, objective)))
    best = _best(records, tuple(ABLATION))
    columns = (Column("condition", text=True), Column("direction", text=True), Column("accuracy (%)"))
    return Table(
        "ablation",
        f"Component ablations: mean ± sample standard deviation (n − 1) over {_seeds(records, tuple(ABLATION))}.",
        (*columns, *_paper_column(records)),
        tuple(rows),
        (*_seed_notes(records, tuple(ABLATION)), *([BOLD] if best else [])),
        best,
    )


def seeds_table(records: ReportRecords) -> Table:
    """Every cell of the grid."""
    look, record = Look(records.to_dict()), records.comparison
    places = {(cell.objective, cell.seed): index for index, cell in enumerate(record.cells)}
    rows = []
    for objective in record.objectives:
        row: list[Content] = [title(objective)]
        for seed in record.seeds:
            index = places.get((objective, seed))
            status = "" if index is None else record.cells[index].status
            row.append(look(f"comparison.cells.{index}.accuracy", "percent") if status == "finished" else status)
        rows.append(tuple(row))
    columns = (Column("method", text=True), *(Column(f"seed {seed}") for seed in record.seeds))
    problems = [f"{cell.objective}-{cell.seed} failed: {cell.problem}" for cell in record.cells if cell.problem]
    return Table("seeds", "Accuracy of every cell (%).", columns, tuple(rows), tuple(problems))


def cost_table(records: ReportRecords) -> Table:
    """Steps, examples and wall-clock of a run."""
    look, record = Look(records.to_dict()), records.comparison
    rows: list[Row] = []
    for at, method in enumerate(record.methods):
        finished = [index for index, cell in enumerate(record.cells) if _is_done(records, index, method.objective)]
        if not finished:
            continue
        cell = f"comparison.cells.{finished[0]}"
        counts = (look(f"{cell}.{field}", "count") for field in ("steps", "samples", "skipped_steps"))
        rows.append((title(method.objective), *counts, look(f"comparison.methods.{at}.seconds", "seconds")))
    columns = (Column("method", text=True), Column("steps"), Column("examples"), Column("steps skipped"))
    return Table(
        "cost",
        "What a run took: optimiser steps, examples and steps left out by mixed precision (all of the first seed), "
        "and seconds of wall-clock in the mean over seeds, beside whatever else the machine did.",
        (*columns, Column("seconds")),
        tuple(rows),
    )


def selection_table(records: ReportRecords) -> Table | None:
    """How often the partition took the teacher's target, by epoch; None where no objective selects."""
    look, record = Look(records.to_dict()), records.comparison
    chosen = [index for index, cell in enumerate(record.cells) if cell.selection_rates]
    if not chosen:
        return None
    longest = max(len(record.cells[index].selection_rates or ()) for index in chosen)
    rows: tuple[Row, ...] = tuple(
        (
            str(epoch + 1),
            *(
                look(f"comparison.cells.{index}.selection_rates.{epoch}", "share")
                if epoch < len(record.cells[index].selection_rates or ())
                else ""
                for index in chosen
            ),
        )
        for epoch in range(longest)
    )
    titles = (f"{title(record.cells[index].objective)}, seed {record.cells[index].seed}" for index in chosen)
    caption = "Share of training samples whose target was the teacher's, by epoch and seed."
    return Table("selection", caption, (Column("epoch", text=True), *map(Column, titles)), rows)


def final_table(records: ReportRecords) -> Table | None:
    """The last students against the teacher on the test split; None without a teacher to compare with."""
    look, record = Look(records.to_dict()), records.comparison
    kinds = {
        "blocked_share": ("blocked", "share"),
        "conditional_loss": ("conditional loss (nats)", "nats"),
        "conditional_loss_blocked": ("conditional loss, blocked (nats)", "nats"),
        "transfer_cost": ("transfer cost (nats)", "nats"),
        "imitation_loss": ("teacher KL (nats)", "nats"),
        "label_loss": ("label loss (nats)", "nats"),
    }
    rows: tuple[Row, ...] = tuple(
        (
            title(method.objective),
            *(look(f"comparison.methods.{at}.final.{name}", kind) for name, (_, kind) in kinds.items()),
        )
        for at, method in enumerate(record.methods)
        if method.final
    )
    columns = (Column("method", text=True), *(Column(heading) for heading, _ in kinds.values()))
    caption = "Final students against the teacher on the test split, means over examples and seeds."
    return Table("final", caption, columns, rows) if rows else None


def _positions(records: ReportRecords) -> dict[str, int]:
    return {method.objective: index for index, method in enumerate(records.comparison.methods)}


def _best(records: ReportRecords, objectives: tuple[str, ...]) -> frozenset[int]:
    """The rows with the largest mean; none where means are over different seeds, or all alike."""
    known = {method.objective: method for method in records.comparison.methods}
    rows = [known[name] for name in objectives if name in known]
    means = [method.mean for method in rows if method.mean is not None]
    if len({method.seeds for method in rows}) != 1 or len(means) < len(rows) or max(means) == min(means):
        return frozenset()
    return frozenset(index for index, mean in enumerate(means) if mean == max(means))


def _accuracy(look: Look, at: int) -> Content:
    here = f"comparison.methods.{at}"
    mean, deviation = look(f"{here}.mean", "percent"), look(f"{here}.standard_deviation", "percent")
    return (mean, " ± ", deviation) if deviation.value is not None else mean


def _difference(records: ReportRecords, look: Look, at: int, reference: str) -> Content:
    pairs = records.comparison.methods[at].versus
    position = next((index for index, pair in enumerate(pairs) if pair.reference == reference), None)
    if position is None:
        return ""
    here = f"comparison.methods.{at}.versus.{position}"
    mean, low, high = (look(f"{here}.{field}", "points") for field in ("mean", "low", "high"))
    return mean if low.value is None else (mean, " [", low, ", ", high, "]")


def _paper_column(records: ReportRecords) -> tuple[Column, ...]:
    domain = records.paper_domain
    return () if domain is None else (Column(f"paper, {DOMAIN_TITLES[domain]} (%)"),)


def _paper_cell(records: ReportRecords, objective: str) -> tuple[Content, ...]:
    domain = records.paper_domain
    if domain is None:
        return ()
    found = PAPER_ACCURACY[domain].get(objective)
    return (f"{found[0]:.2f} ± {found[1]:.2f}" if found else "",)


def _seeds(records: ReportRecords, objectives: tuple[str, ...]) -> str:
    """The seeds of all these rows, where they share them."""
    groups = _by_seeds(records, objectives)
    return "the seeds of each" if len(groups) > 1 else _listed(next(iter(groups), records.comparison.seeds))


def _by_seeds(records: ReportRecords, objectives: tuple[str, ...]) -> dict[tuple[int, ...], list[str]]:
    """Seeds, finished or not -> the objectives that were asked for with them; most seeds first."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for method in records.comparison.methods:
        if method.objective in objectives:
            groups.setdefault(method.asked_seeds, []).append(title(method.objective))
    return dict(sorted(groups.items(), key=lambda group: -len(group[0])))


def _listed(seeds: tuple[int, ...]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _with_interval(records: ReportRecords) -> str:
    """Which interval stands beside a difference; nothing where one seed gives none."""
    record = records.comparison
    return f", with their {100 * record.confidence_level:g} % t-interval" if record.has_intervals else ""


def _seed_notes(records: ReportRecords, objectives: tuple[str, ...]) -> Iterator[str]:
    """Which rows have which seeds, where that differs, and which seeds did not finish."""
    groups = _by_seeds(records, objectives)
    if len(groups) > 1:
        yield "; ".join(f"{', '.join(titles)}: {_listed(seeds)}" for seeds, titles in groups.items()) + "."
    for method in records.comparison.methods:
        if method.objective in objectives and method.missing_seeds:
            yield _missing_note(method)


def _missing_note(method: MethodSummary) -> str:
    missing = ", ".join(map(str, method.missing_seeds))
    return f"{title(method.objective)}: n = {len(method.seeds)}, without seed {missing}."


def _is_done(records: ReportRecords, index: int, objective: str) -> bool:
    cell = records.comparison.cells[index]
    return cell.objective == objective and cell.status == "finished"
