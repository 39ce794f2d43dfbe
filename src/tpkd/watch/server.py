"""The live page over a loopback address: for this machine alone, under an address that nobody can guess."""

import re
import secrets
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tpkd.watch.page import INDEX_NAME, curves_script, index_script, watch_page
from tpkd.watch.watch import Watch

HOST = "127.0.0.1"
_FOLDER = "data"
_CURVES = re.compile(rf"{_FOLDER}/curves-(\d{{1,9}})\.js")
_TYPES = {".js": "text/javascript; charset=utf-8", "": "text/html; charset=utf-8"}
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",  # the data are scripts: no other page may load them
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class LiveServer(ThreadingHTTPServer):
    """Serves the page and the data of one watch, and nothing else.

    The path begins with a random word, so that other users of the machine and pages of other sites cannot ask. A
    request under another host name, as from a site whose name was bound to this machine, is refused.
    """

    daemon_threads = True

    def __init__(self, watch: Watch, *, port: int = 0, every: float = 2.0) -> None:
        """Bind to a port of the loopback interface, by default a free one."""
        super().__init__((HOST, port), _Handler)
        self._watch, self._every = watch, every
        self._lock, self._looked = threading.Lock(), float("-inf")
        self._word = secrets.token_urlsafe(16)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_port}/{self._word}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names under which a request may come."""
        return tuple(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    def answer(self, path: str) -> str | None:
        """The page or a script by its path; None for anything else."""
        word, _, name = path.removeprefix("/").partition("/")
        if not secrets.compare_digest(word.encode(), self._word.encode()) or not path.startswith(f"/{word}/"):
            return None
        with self._lock:
            if name == "":
                return watch_page(self._watch.title, _FOLDER)
            if name == f"{_FOLDER}/{INDEX_NAME}":
                if time.monotonic() - self._looked > self._every / 2:  # several windows share a look
                    self._watch.refresh()
                    self._looked = time.monotonic()
                return index_script(self._watch.record(every=self._every))
            found = _CURVES.fullmatch(name)
            curves = self._watch.curves(int(found[1])) if found else None
            return None if curves is None else curves_script(curves)


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    server_version, sys_version = "tpkd", ""
    timeout = 30

    def do_GET(self) -> None:
        self._send(with_body=True)

    def do_HEAD(self) -> None:
        self._send(with_body=False)

    def _send(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        if self.headers.get("Host", "") not in self.server.hosts:
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        text = self.server.answer(path)
        if text is None:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        body = text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", _TYPES[".js" if path.endswith(".js") else ""])
        self._end_headers(len(body))
        if with_body:
            self.wfile.write(body)

    def _refuse(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self._end_headers(0)

    def _end_headers(self, length: int) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: the terminal belongs to the command."""
