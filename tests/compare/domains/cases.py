"""Two small comparisons, side by side."""

from compare.owner.cases import records_of
from tpkd.compare.domains.record import DomainsRecords
from tpkd.compare.reporting import catalogue


def two_domains(first, second, names=("toys", "texts"), **settings):
    """Objective -> skill in each of the two."""
    domains = (records_of(first, name="one", **settings), records_of(second, name="two", **settings))
    return DomainsRecords(catalogue(), names, domains)
