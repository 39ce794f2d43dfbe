"""`tpkd figures --interactive`: the explorer as a file."""

from pathlib import Path

from tpkd.figures.cases import explorer_record
from tpkd.figures.page import explorer_page
from tpkd.files import write_file

EXPLORER_NAME = "explorer.html"


def write_explorer(directory: Path) -> Path:
    """Write the explorer into a directory that exists; return its path. Needs the extra `report`."""
    path = directory / EXPLORER_NAME
    write_file(path, explorer_page(explorer_record()))
    return path
