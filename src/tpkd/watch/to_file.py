"""The live page as a file: scripts in a folder beside it, of which only those that changed are written again."""

from pathlib import Path
from urllib.parse import quote

from tpkd.errors import InputError
from tpkd.files import write_file
from tpkd.watch.page import INDEX_NAME, curves_name, curves_script, index_script, watch_page
from tpkd.watch.watch import Watch

_MARK = "tpkdWatch."


class PageFile:
    """Keeps `PAGE.html` and the folder `PAGE-data/` current."""

    def __init__(self, path: Path, watch: Watch) -> None:
        """Write the page; its data come with `update`.

        Raises:
            InputError: the name is not that of a page, or there is something else in the way.
        """
        if path.suffix != ".html":
            raise InputError(f"{path}: expected a name that ends in .html")
        self._watch, self._versions = watch, dict[int, int]()
        self._folder = path.with_name(f"{path.stem}-data")
        self._check_folder()
        write_file(path, watch_page(watch.title, quote(self._folder.name)))

    def _check_folder(self) -> None:
        if not self._folder.exists():
            return
        index = self._folder / INDEX_NAME
        if not index.is_file() or not index.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
            raise InputError(f"{self._folder}: expected the data of an earlier page, found something else")

    def update(self, *, every: float | None) -> None:
        """Write what is new; `every` as `Watch.record` takes it."""
        record = self._watch.record(every=every)
        for cell in record.cells:
            if cell.version and self._versions.get(cell.number) != cell.version:
                curves = self._watch.curves(cell.number)
                assert curves is not None
                write_file(self._folder / curves_name(cell.number), curves_script(curves))
                self._versions[cell.number] = cell.version
        write_file(self._folder / INDEX_NAME, index_script(record))  # after what it promises
