"""Tables of several comparisons: methods × domains in the paper's layout, differences, claims, and what was run."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from tpkd.compare.claims import claims_table
from tpkd.compare.domains.record import DomainsRecords
from tpkd.compare.owner.tables import interval, verdict
from tpkd.compare.record import MethodSummary
from tpkd.report.tables import Column, Content, Number, Row, Table, Traced, parts, text


def domain_tables(records: DomainsRecords) -> dict[str, Table | None]:
    """Every table by name; None where the records have no data for it."""
    return {
        "domains": main_table(records),
        "differences": differences_table(records),
        "controls": controls_table(records),
        "claims": claims_overview(records),
        "facts": facts_table(records),
    }


def main_table(records: DomainsRecords) -> Table:
    """Every method but the controls in every domain, in the layout of the paper's main table."""
    caption = "Full-training accuracy (%): mean ± sample standard deviation (n − 1) over seeds."
    return _accuracies(records, "domains", caption, records.objectives(controls=False))


def controls_table(records: DomainsRecords) -> Table | None:
    """The controls, which leave out one part of TPKD each, in every domain; None if no comparison has one."""
    names = records.objectives(controls=True)
    caption = "Controls (%): TPKD without one of its parts, mean ± sample standard deviation (n − 1) over seeds."
    return _accuracies(records, "controls", caption, names) if names else None


def _accuracies(records: DomainsRecords, name: str, caption: str, objectives: Sequence[str]) -> Table:
    rows = tuple(
        (records.methods.title(objective), *(_accuracy(records, place, objective) for place in _places(records)))
        for objective in objectives
    )
    columns = (Column("method", text=True), *(Column(_heading(records, place)) for place in _places(records)))
    best = {domain: best_methods(records, place, objectives) for place, domain in enumerate(records.names)}
    leaders = set.intersection(*map(set, best.values())) if best else set()
    emphasis = frozenset(place for place, objective in enumerate(objectives) if objective in leaders)
    said = "; ".join(
        f"{domain}: {', '.join(map(records.methods.title, found))}" for domain, found in best.items() if found
    )
    notes = [f"Largest mean by domain: {said}."] if said and len(objectives) > 1 else []
    return Table(name, caption, columns, rows, (*notes, *_seed_notes(records)), emphasis)


def _places(records: DomainsRecords) -> range:
    return range(len(records.domains))


def _heading(records: DomainsRecords, place: int) -> str:
    epochs = records.domains[place].comparison.protocol.get("epochs")
    return records.names[place] if epochs is None else f"{records.names[place]}, {epochs} epochs"


def summary_of(records: DomainsRecords, place: int, objective: str) -> tuple[MethodSummary, Traced] | None:
    """An objective in one domain; None if no seed of it finished there."""
    methods = records.domains[place].comparison.methods
    seen = Traced(records).domains[place].comparison.methods
    for method, part in zip(methods, seen, strict=True):
        if method.objective == objective and method.mean is not None:
            return method, part
    return None


def _accuracy(records: DomainsRecords, place: int, objective: str) -> Content:
    found = summary_of(records, place, objective)
    if found is None:
        return ""
    method, part = found
    mean, deviation = part.mean("percent"), part.standard_deviation("percent")
    return mean if method.standard_deviation is None else (mean, " ± ", deviation)


def best_methods(records: DomainsRecords, place: int, objectives: Sequence[str]) -> list[str]:
    """The objectives with the largest mean of a domain; none if means are over different seeds, or all equal."""
    found = {name: summary[0] for name in objectives if (summary := summary_of(records, place, name))}
    means = {name: method.mean for name, method in found.items() if method.mean is not None}
    if len({method.seeds for method in found.values()}) != 1 or len(set(means.values())) < 2:
        return []
    return [name for name, mean in means.items() if mean == max(means.values())]


def _seed_notes(records: DomainsRecords) -> list[str]:
    notes = []
    for domain, found in zip(records.names, records.domains, strict=True):
        missing = [cell.name for cell in found.comparison.cells if cell.status != "finished"]
        if missing:
            notes.append(f"{domain}: without {', '.join(missing)}, which did not finish.")
        if found.comparison.stamp:
            notes.append(f"{domain}: {found.comparison.stamp}")
        if len({method.seeds for method in found.comparison.methods if method.seeds}) > 1:
            notes.append(f"{domain}: means are over different seeds; compare methods by their paired differences.")
    return notes


def differences_table(records: DomainsRecords) -> Table | None:
    """Differences from the reference of each domain, with both intervals; None if no domain has any."""
    shown = [place for place in _places(records) if _reference(records, place) is not None]
    columns = [Column("method", text=True)]
    for place in shown:
        reference = records.methods.title(_reference(records, place) or "")
        columns.append(Column(f"{records.names[place]}: minus {reference} (points)"))
        columns += [Column(f"over {_OVER[over]}") for over in _known(records, place)]
        columns.append(Column("verdict", text=True))
    rows: list[Row] = []
    for objective in [*records.objectives(controls=False), *records.objectives(controls=True)]:
        cells = [cell for place in shown for cell in _difference(records, place, objective)]
        if any(cells):
            rows.append((records.methods.title(objective), *cells))
    caption = (
        "Differences in accuracy, paired by seed and by test sample, with intervals for each; the wider interval "
        "decides, in each domain for itself."
    )
    return Table("differences", caption, tuple(columns), tuple(rows)) if rows else None


def _reference(records: DomainsRecords, place: int) -> str | None:
    found = records.domains[place].assessment
    return None if found is None else found.reference


_OVER = {"seed": "seeds", "sample": "test samples"}


def _known(records: DomainsRecords, place: int) -> list[str]:
    """Which intervals any difference of a domain has."""
    found = records.domains[place].assessment
    pairs = [method.minus_reference for method in found.methods if method.minus_reference] if found else []
    return [over for over in _OVER if any(getattr(pair, f"{over}_low") is not None for pair in pairs)]


def _difference(records: DomainsRecords, place: int, objective: str) -> tuple[Content, ...]:
    found, seen = records.domains[place].assessment, Traced(records).domains[place].assessment
    assert found is not None
    known = _known(records, place)
    for method, part in zip(found.methods, seen.methods, strict=True):
        if method.objective == objective and (difference := method.minus_reference) is not None:
            against = part.minus_reference
            ends = [
                ""
                if getattr(difference, f"{over}_low") is None
                else interval(getattr(against, f"{over}_low")("points"), getattr(against, f"{over}_high")("points"))
                for over in known
            ]
            said = verdict(difference, records.methods.title(found.reference or ""))
            return (against.mean("points"), *ends, said)
    return ("",) * (2 + len(known))


def claims_overview(records: DomainsRecords) -> Table | None:
    """The paper's claims by domain: the verdict and the number behind it; None if the records cover none of them."""
    cells: dict[str, dict[int, Content]] = {}
    for place, domain in enumerate(records.domains):
        table = claims_table(domain)
        for statement, found, ends, cases, decided in table.rows if table else ():
            split = next((name for name in ("train", "test") if name in text(cases)), None)
            claim = f"{text(statement)} ({split})" if split else text(statement)
            between: Content = "" if text(ends) == "none" else (" [", *parts(ends), "]")
            content = (f"{text(decided)}: ", *parts(found), *parts(between))
            cells.setdefault(claim, {})[place] = _moved(content, f"domains.{place}")
    rows = tuple((claim, *(found.get(place, "") for place in _places(records))) for claim, found in cells.items())
    columns = (Column("claim of the paper", text=True), *(Column(name, text=True) for name in records.names))
    caption = (
        "The paper's claims by domain: the verdict of the page of each, and its number with its interval over seeds."
    )
    return Table("claims", caption, columns, rows) if rows else None


def _moved(content: Content, prefix: str) -> Content:
    """The same content with the paths of its numbers below a prefix."""
    return tuple(
        replace(part, path=f"{prefix}.{part.path}") if isinstance(part, Number) else part for part in parts(content)
    )


def facts_table(records: DomainsRecords) -> Table:
    """Data, networks and seeds of every domain."""
    rows: list[Row] = []
    seen = Traced(records)
    for place, domain in enumerate(records.domains):
        record, part = domain.comparison, seen.domains[place].comparison
        data: Content = str(record.protocol.get("data.name") or "")
        if record.data is not None:
            sizes = (part.data.train_samples("count"), " / ", part.data.test_samples("count"))
            data = (record.data.name, ": ", *sizes, " samples, ", part.data.classes("count"), " classes")
        start, teacher = (
            _network(found, each) for found, each in ((record.start, part.start), (record.teacher, part.teacher))
        )
        protocol = "the paper's" if domain.paper_domain is not None else "its own"
        rows.append(
            (records.names[place], record.name, data, start, teacher, ", ".join(map(str, record.seeds)), protocol)
        )
    headings = ("domain", "comparison", "data: train / test", "student at its start", "teacher", "seeds", "protocol")
    return Table(
        "facts",
        "Data, networks and seeds by domain.",
        tuple(Column(heading, text=True) for heading in headings),
        tuple(rows),
    )


def _network(network: object, part: Traced) -> Content:
    if network is None:
        return ""
    accuracy = part.accuracy("percent")
    model = str(getattr(network, "model", ""))
    return model if accuracy.value is None else (f"{model}, ", accuracy, " %")


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """Names with a number where several are equal.

    Example:
        >>> unique(["digits", "texts", "digits"])
        ('digits (1)', 'texts', 'digits (2)')
    """
    counters = {name: count(1) for name in names}
    return tuple(f"{name} ({next(counters[name])})" if names.count(name) > 1 else name for name in names)
