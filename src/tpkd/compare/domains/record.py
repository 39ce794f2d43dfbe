"""Several comparisons side by side."""

from dataclasses import dataclass

from tpkd.compare.record import ReportRecords
from tpkd.report.methods import Catalogue


@dataclass(frozen=True)
class DomainsRecords:
    """The records of several comparisons, in the order given, each with its name in tables."""

    methods: Catalogue
    names: tuple[str, ...]
    domains: tuple[ReportRecords, ...]

    def objectives(self, *, controls: bool) -> list[str]:
        """Objectives that any comparison has, in table order; those that are not installed here come last."""
        found = dict.fromkeys(name for domain in self.domains for name in domain.comparison.objectives)
        order = {method.name: place for place, method in enumerate(self.methods.methods)}
        names = sorted(found, key=lambda name: order.get(name, len(order)))
        return [name for name in names if self.methods[name].control == controls]
