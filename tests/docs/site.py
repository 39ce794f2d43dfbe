"""The site, built once for all tests and workers, and its links."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]


def build_site(factory) -> Path:
    """Build into a folder that all workers of a test run share; the first one builds."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    site, log = base / "site", base / "site.log"
    with FileLock(base / "site.lock"):
        if not log.exists():
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
            result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            log.write_text(f"{result.returncode}\n{result.stdout}{result.stderr}")
    code, _, output = log.read_text().partition("\n")
    assert code == "0", output[-3000:]
    return site


class Links(HTMLParser):
    """Where a page leads, what it loads, and the places in it that others can lead to."""

    def __init__(self, page: Path):
        super().__init__()
        self.targets, self.loaded, self.anchors = [], [], {""}
        self.feed(page.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        if tag == "a" and attributes.get("href"):
            self.targets.append(attributes["href"])
        if tag == "link" and attributes.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(attributes["href"])
        if tag in ("script", "img", "iframe", "source") and attributes.get("src"):
            self.loaded.append(attributes["src"])
