"""`tpkd report DIR DIR …`: reads several comparisons and writes their common page and tables."""

from collections.abc import Sequence
from pathlib import Path

from tpkd.compare.domains.record import DomainsRecords
from tpkd.compare.domains.tables import unique
from tpkd.compare.record import ReportRecords
from tpkd.compare.reporting import catalogue, read_records
from tpkd.compare.tables import DOMAIN_TITLES
from tpkd.errors import InputError
from tpkd.files import read_text, write_file

PAGE_NAME = "report.html"
TABLES_NAME = "tables"
_OURS = '<meta name="generator" content="tpkd report">'


def common_place(directories: Sequence[Path]) -> Path:
    """Where the page of several directories goes by default: beside the first, named after all.

    Example:
        >>> common_place([Path("runs/cpu-vision"), Path("runs/cpu-text")]).as_posix()
        'runs/report-cpu-vision-cpu-text'
    """
    names = [directory.resolve().name or "root" for directory in directories]
    return directories[0].parent / "-".join(["report", *names])


def check_place(directories: Sequence[Path], place: Path) -> None:
    """Refuse a place where a report would overwrite something that an earlier report did not write.

    Raises:
        InputError: a directory is given twice, or the place holds other files.
    """
    seen: set[Path] = set()
    for directory in directories:
        if directory.resolve() in seen:
            raise InputError(f"{directory}: expected every directory once, found it twice")
        seen.add(directory.resolve())
    if not place.exists():
        return
    way_out = "name a new directory with --out"
    if not place.is_dir():
        raise InputError(f"{place}: expected a directory, found a file; {way_out}")
    others = sorted(entry.name for entry in place.iterdir() if entry.name not in (PAGE_NAME, TABLES_NAME))
    page = place / PAGE_NAME
    if not others and (place / TABLES_NAME).exists() and not page.exists():
        others = [TABLES_NAME]
    if not others and page.exists() and _OURS not in read_text(page):
        others = [PAGE_NAME]
    if others:
        raise InputError(
            f"{place}: expected a new directory or one that an earlier report made, found {others[0]}; {way_out}"
        )


def write_domains(directories: Sequence[Path], place: Path) -> list[Path]:
    """Write the common page and tables of several comparisons; returns the paths written.

    Raises:
        InputError: a directory is not a comparison or run, a record is damaged, or the place holds other files.
    """
    from tpkd.compare.domains.page import domains_files

    check_place(directories, place)
    records = read_domains(directories)
    written = []
    for name, text in domains_files(records).items():
        written.append(place / name)
        write_file(written[-1], text)
    return written


def read_domains(directories: Sequence[Path]) -> DomainsRecords:
    """Read all records of several directories, and give each a name: its data, or what tells it from the others."""
    domains = tuple(read_records(directory) for directory in directories)
    candidates = (
        [_data_name(found) for found in domains],
        [found.comparison.name for found in domains],
        [str(directory) for directory in directories],
    )
    names = next((names for names in candidates if len(set(names)) == len(names)), candidates[-1])
    variants = [variant for found in domains for variant in found.comparison.variants]
    return DomainsRecords(catalogue(variants), unique(names), domains)


def _data_name(records: ReportRecords) -> str:
    record = records.comparison
    if record.paper.domain is not None:
        return DOMAIN_TITLES[record.paper.domain]
    return record.data.name if record.data is not None else str(record.protocol.get("data.name", record.name))
