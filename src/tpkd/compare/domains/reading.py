"""Several comparisons in plain words: what holds in every domain, and what does not."""

from collections.abc import Iterator

from tpkd.compare.domains.record import DomainsRecords
from tpkd.compare.domains.tables import best_methods
from tpkd.report.numbers import listed


def domain_sentences(records: DomainsRecords) -> list[str]:
    """What the domains have in common."""
    return [*_best(records), *_decided(records), *_own_protocols(records)]


def _best(records: DomainsRecords) -> Iterator[str]:
    title = records.methods.title
    objectives = [*records.objectives(controls=False), *records.objectives(controls=True)]
    leaders = {name: best_methods(records, place, objectives) for place, name in enumerate(records.names)}
    leaders = {name: found for name, found in leaders.items() if found}
    if len(leaders) < 2 or len(objectives) < 2:
        return
    common = set.intersection(*map(set, leaders.values()))
    if common:
        yield f"{listed(title(name) for name in objectives if name in common)} has the highest mean in every domain."
    else:
        said = "; ".join(f"{listed(map(title, found))} in {name}" for name, found in leaders.items())
        yield f"No method has the highest mean in every domain: {said}."


def _decided(records: DomainsRecords) -> Iterator[str]:
    """Methods on one side of the reference in every domain, by the wider of their intervals."""
    title, sides = records.methods.title, dict[str, list[int]]()
    references = {found.assessment.reference for found in records.domains if found.assessment is not None}
    if len(references) != 1 or None in references:
        return
    reference = title(references.pop() or "")
    for domain in records.domains:
        assert domain.assessment is not None
        for method in domain.assessment.methods:
            if method.minus_reference is not None:
                sides.setdefault(method.objective, []).append(method.minus_reference.side)
    total, decided = len(records.domains), False
    for side, word in ((1, "Above"), (-1, "Below")):
        names = [name for name, found in sides.items() if found == [side] * total]
        if names:
            decided = True
            yield f"{word} {reference} in every domain: {listed(map(title, names))}."
    if sides and not decided:
        yield f"No method is above {reference} in every domain, and none is below it in every domain."
    mixed = [name for name, found in sides.items() if {1, -1} <= set(found)]
    if mixed:
        yield f"Above {reference} in one domain and below it in another: {listed(map(title, mixed))}."


def _own_protocols(records: DomainsRecords) -> Iterator[str]:
    own = [name for name, found in zip(records.names, records.domains, strict=True) if found.paper_domain is None]
    if own:
        yield f"Not the paper's protocol in {listed(own)}: nothing here confirms or contradicts the paper's numbers."
