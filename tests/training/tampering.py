"""Checkpoints that somebody changed and made look whole again: only their content can give them away."""

import hashlib
import json


def change_state(directory, change):
    """Pass the state of a checkpoint through `change`, and write its digest anew."""
    state = json.loads((directory / "state.json").read_text())
    write_state(directory, json.dumps(change(state) or state).encode())


def write_state(directory, data):
    """Write the state of a checkpoint, together with its right digest."""
    (directory / "state.json").write_bytes(data)
    (directory / "state.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  state.json\n")
