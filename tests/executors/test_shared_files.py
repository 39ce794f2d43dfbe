"""A machine that does not see the files of this one is refused before anything runs there."""

import pytest

from tpkd.errors import InputError
from tpkd.executors.shared_files import PROBE_NAME, Probe, leave_probe


def test_the_token_is_new_each_time(tmp_path):
    first, second = leave_probe(tmp_path), leave_probe(tmp_path)
    second.check("node")
    with pytest.raises(InputError, match="node does not see the files that this machine writes there; put `output`"):
        first.check("node")


def test_another_disk_with_the_same_name(tmp_path):
    probe = leave_probe(tmp_path)
    (tmp_path / PROBE_NAME).unlink()
    with pytest.raises(InputError, match="node-7 does not see"):
        probe.check("node-7")
    with pytest.raises(InputError, match="node-7 does not see"):
        Probe(tmp_path / "nowhere", "token").check("node-7")
