"""What the processes of the worker tests do."""

import os
import signal
import time
from pathlib import Path

from tpkd.errors import InputError


def work(payload, on_progress):
    kind, path = payload
    if kind == "input":
        raise InputError("config.yaml: wrong")
    if kind == "bug":
        raise ValueError("first line\nsecond line")
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "wait":
        Path(path).write_text(str(os.getpid()))
        time.sleep(600)
    on_progress(1, 2)
    on_progress(2, 2)
    Path(path).write_text(str(os.getpid()))
