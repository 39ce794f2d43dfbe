"""A process that has never seen tpkd: what another library makes of an exported student."""

import json
import subprocess
import sys


def run_fresh(code, *arguments):
    """Run code that prints one JSON value; importing tpkd in it is an error."""
    blocked = "import sys; sys.modules['tpkd'] = None\n"
    command = [sys.executable, "-c", blocked + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
