"""The verbs in this process: what they print and how they exit, without starting Python anew each time."""

import sys

from tpkd.cli.main import main


def run(capsys, monkeypatch, *arguments):
    """Exit code, output and errors of one command."""
    monkeypatch.setattr(sys, "argv", ["tpkd", *map(str, arguments)])
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    printed = capsys.readouterr()
    return code, printed.out, printed.err
