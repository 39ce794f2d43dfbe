"""Whether another machine sees the files of this one: a token in a file, looked for from there."""

import secrets
from dataclasses import dataclass
from pathlib import Path

from tpkd.errors import InputError
from tpkd.files import read_text, write_file

PROBE_NAME = ".probe"


@dataclass(frozen=True)
class Probe:
    """A directory, and the token that its probe file holds.

    Example:
        >>> import tempfile
        >>> probe = leave_probe(Path(tempfile.mkdtemp()))
        >>> probe.check("node-2")
        >>> Probe(probe.directory, "another").check("node-2")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: ...: node-2 does not see the files that this machine writes there; put `output` on a \
file system that all nodes share
    """

    directory: Path
    token: str

    def check(self, where: str) -> None:
        """Refuse a machine that does not see the file.

        Raises:
            InputError: names the machine.
        """
        try:
            found = read_text(self.directory / PROBE_NAME, 1 << 10)
        except InputError:
            found = ""
        if found != self.token:
            raise InputError(
                f"{self.directory}: {where} does not see the files that this machine writes there; put `output` on a "
                "file system that all nodes share"
            )


def leave_probe(directory: Path) -> Probe:
    """Write a new token into the probe file of a directory."""
    token = secrets.token_hex(16)
    write_file(directory / PROBE_NAME, token)
    return Probe(directory.resolve(), token)
